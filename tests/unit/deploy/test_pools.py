"""Node pools of the chart: services of their own, which share etcd and lifecycle. tests/e2e has two that run."""

from pathlib import Path

import pytest

from builders.deploy.helm import JSON, of_kind, rendered, template

VALUES = (Path(__file__).parents[2] / "deploy" / "pools.yaml").read_text()
POOLS = ("", "-train", "-serve")


def arguments(component: str) -> dict[str, str]:
    """Arguments of the container with a value, by option."""
    [container] = of_kind(rendered(VALUES), "Deployment")[f"muster-{component}"]["spec"]["template"]["spec"][
        "containers"
    ]
    return dict(each.partition("=")[::2] for each in container["args"] if "=" in each)


def test_pools_have_different_pods_nodes_and_records() -> None:
    states, coordinators = ([arguments(f"{name}{pool}") for pool in POOLS] for name in ("cluster-state", "coordinator"))
    assert [each["--scheduler-names"] for each in states] == ["muster", "muster-train,volcano", "muster-serve"]
    assert [each["--node-selector"] for each in states] == [
        "muster.dev/pool notin (train,serve)",
        "muster.dev/pool=train",
        "muster.dev/pool=serve",
    ]
    prefixes = [each["--etcd-prefix"] for each in coordinators]
    assert prefixes == ["/muster/v1", "/muster/v1/pools/train", "/muster/v1/pools/serve"]
    assert arguments("lifecycle")["--scheduler-names"] == "muster,muster-train,volcano,muster-serve"


@pytest.mark.parametrize("pool", POOLS)
def test_services_call_and_admit_those_of_their_pool(pool: str) -> None:
    host = "muster-{}.muster-system.svc"
    coordinator = arguments(f"coordinator{pool}")
    for option in ("cluster-state", "placement", "binding"):
        assert coordinator[f"--{option}"].startswith("dns:///" + host.format(f"{option}{pool}") + ":")
    for service, callers in {
        "placement": ["coordinator"],
        "binding": ["coordinator"],
        "cluster-state": ["coordinator", "placement"],
    }.items():
        admitted = arguments(f"{service}{pool}")["--tls-clients"].split(",")
        assert [host.format(f"{each}{pool}") for each in callers] == admitted[: len(callers)]
        others = {f"muster-{each}{other}." for each in callers for other in POOLS if other != pool}
        assert not [name for name in admitted for other in others if name.startswith(other)]


def test_one_pool_is_as_before() -> None:
    assert "--node-selector" not in str(rendered())


def test_alerts_cover_every_pool() -> None:
    groups = of_kind(rendered(VALUES), "PrometheusRule")["muster"]["spec"]["groups"]
    rules: list[JSON] = [rule for group in groups for rule in group["rules"] if rule["alert"] == "MusterNoLeader"]
    assert [rule["labels"].get("pool", "") for rule in rules] == ["", "train", "serve"]
    assert [f'job="coordinator{pool}"' in rule["expr"] for pool, rule in zip(POOLS, rules, strict=True)] == [True] * 3
    of_train = [rule for group in groups if group["name"].endswith("-train") for rule in group["rules"]]
    assert not [rule for rule in of_train if 'job="lifecycle"' in rule["expr"]]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("pools: [{name: a, schedulerNames: [x]}, {name: a, schedulerNames: [z]}]", '"a" is there twice'),
        ("pools: [{name: a, schedulerNames: [muster]}]", '"muster" is there twice'),
        ("pools: [{name: A, schedulerNames: [x]}]", "/pools/0/name"),
        ("pools: [{name: a, schedulerNames: []}]", "/pools/0/schedulerNames"),
        (
            "{pools: [{name: a, schedulerNames: [x]}],"
            " placement: {implementation: external, external: {address: 'p:7003'}}}",
            "pools need a placement for each",
        ),
        (
            "{fullnameOverride: " + "m" * 40 + ", pools: [{name: abcdefghij, schedulerNames: [x]}]}",
            "more than 63 characters",
        ),
    ],
)
def test_wrong_pools_are_rejected(values: str, reason: str) -> None:
    result = template(values=values)
    assert (result.returncode != 0, reason in result.stderr) == (True, True), result.stderr
