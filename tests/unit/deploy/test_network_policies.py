"""Connectivity under the chart's network policies: the calls of the architecture and no others."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from builders.deploy.helm import JSON, of_kind, rendered

VALUES = Path(__file__).parents[2] / "deploy"
COMPONENT = "app.kubernetes.io/component"
API_SERVER, ANYWHERE, MONITORING = "API server", "anywhere", "namespace monitoring"
DNS = {53}


@cache
def policies(values: str) -> dict[str, JSON]:
    text = "" if values == "default" else (VALUES / f"{values}.yaml").read_text()
    found = of_kind(rendered(text), "NetworkPolicy").values()
    return {each["spec"]["podSelector"]["matchLabels"][COMPONENT]: each["spec"] for each in found}


def ends(rule: JSON, field: str) -> list[str]:
    """Short names of a rule's peers."""
    if field not in rule:
        return [ANYWHERE]
    return [named(peer) for peer in rule[field]]


def named(peer: dict[str, Any]) -> str:
    if "podSelector" in peer:
        return str(peer["podSelector"]["matchLabels"][COMPONENT])
    if "ipBlock" in peer:
        return str(peer["ipBlock"]["cidr"])
    labels = peer["namespaceSelector"].get("matchLabels") or {}
    return "namespace " + next(iter(labels.values()), "any")


def arrows(values: str) -> set[tuple[str, str, int]]:
    """Connections between Muster's pods that both sides allow."""
    leave, arrive = set(), set()
    for component, spec in policies(values).items():
        for rule in spec.get("egress") or ():
            leave |= {(component, to, port["port"]) for to in ends(rule, "to") for port in rule["ports"]}
        for rule in spec.get("ingress") or ():
            arrive |= {(source, component, port["port"]) for source in ends(rule, "from") for port in rule["ports"]}
    return leave & arrive


def test_pods_reach_exactly_the_services_they_call() -> None:
    assert arrows("default") == {
        ("coordinator", "cluster-state", 7001),
        ("coordinator", "placement", 7003),
        ("coordinator", "binding", 7004),
        ("coordinator", "etcd", 2379),
        ("coordinator", "coordinator", 7002),
        ("binding", "coordinator", 7002),
        ("placement", "cluster-state", 7001),
        ("etcd", "etcd", 2380),
        ("etcd-users", "etcd", 2379),
    }


def test_services_of_a_pool_reach_each_other_and_no_others() -> None:
    expected = {("etcd", "etcd", 2380), ("etcd-users", "etcd", 2379)}
    for pool in ("", "-train", "-serve"):
        expected |= {
            (f"coordinator{pool}", f"cluster-state{pool}", 7001),
            (f"coordinator{pool}", f"placement{pool}", 7003),
            (f"coordinator{pool}", f"binding{pool}", 7004),
            (f"coordinator{pool}", "etcd", 2379),
            (f"coordinator{pool}", f"coordinator{pool}", 7002),
            (f"binding{pool}", f"coordinator{pool}", 7002),
            (f"placement{pool}", f"cluster-state{pool}", 7001),
        }
    readers = ("console", "forecast")
    assert {each for each in arrows("pools") if each[0] not in readers} == expected
    assert {to for source, to, _ in arrows("pools") if source in readers} == {
        "cluster-state",
        "coordinator",
        "forecast",
    }


@pytest.mark.parametrize("values", ["default", "everything", "elsewhere"])
def test_only_api_clients_have_egress(values: str) -> None:
    for component, spec in policies(values).items():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        anywhere = [rule for rule in spec["egress"] if ends(rule, "to") == [ANYWHERE]]
        out = {port["port"] for rule in anywhere for port in rule["ports"]} - DNS
        calls = component in ("cluster-state", "binding", "lifecycle", "console", "test")
        allowed = {443, 6443} if calls and values != "everything" else set()
        assert out == allowed, component


def test_the_api_server_can_be_restricted_to_cidrs() -> None:
    for component in ("cluster-state", "binding", "lifecycle", "console", "test"):
        [rule] = [each for each in policies("everything")[component]["egress"] if ends(each, "to") == ["10.0.0.0/16"]]
        assert [port["port"] for port in rule["ports"]] == [6443]
    [webhook] = [each for each in policies("everything")["lifecycle"]["ingress"] if each["ports"][0]["port"] == 9443]
    assert ends(webhook, "from") == ["10.0.0.0/16"]


def test_metrics_are_restricted_to_one_namespace() -> None:
    for component, spec in policies("default").items():
        open_to_all = [rule for rule in spec.get("ingress") or () if ends(rule, "from") == [ANYWHERE]]
        assert not open_to_all, component
        sources = {
            source
            for rule in spec.get("ingress") or ()
            if rule["ports"][0]["port"] in (8080, 2381)
            for source in ends(rule, "from")
        }
        assert sources == (set() if component in ("etcd-users", "test") else {MONITORING}), component


def test_trace_and_client_egress_is_configurable() -> None:
    egress = policies("everything")["coordinator"]["egress"]
    assert [ends(rule, "to") for rule in egress if rule["ports"][0]["port"] == 4318] == [["namespace tracing"]]
    ingress = policies("everything")["coordinator"]["ingress"]
    assert [ends(rule, "from") for rule in ingress if rule["ports"][0]["port"] == 7002] == [
        ["binding", "coordinator", "forecast", "console", "namespace platform"]
    ]


def test_forecast_reads_and_is_asked_by_clients_only() -> None:
    assert {each for each in arrows("everything") if "forecast" in each} == {
        ("forecast", "cluster-state", 7001),
        ("forecast", "coordinator", 7002),
        ("console", "forecast", 7006),
    }
    [asked] = [each for each in policies("everything")["forecast"]["ingress"] if each["ports"][0]["port"] == 7006]
    assert ends(asked, "from") == ["namespace platform", "console"]
    assert "forecast" not in policies("default")


def test_the_console_is_reached_by_its_clients_alone() -> None:
    calls = {arrow for arrow in arrows("everything") if "console" in arrow}
    assert calls == {
        ("console", "cluster-state", 7001),
        ("console", "coordinator", 7002),
        ("console", "forecast", 7006),
    }
    [rule] = [each for each in policies("everything")["console"]["ingress"] if each["ports"][0]["port"] == 7007]
    assert ends(rule, "from") == ["namespace ingress"]


def test_external_services_are_reachable() -> None:
    made = policies("elsewhere")
    reached = {port["port"]: ends(rule, "to") for rule in made["coordinator"]["egress"] for port in rule["ports"]}
    assert reached[9000] == ["namespace ml"]
    assert reached[2379] == ["192.0.2.0/24"]
    [rule] = [each for each in made["cluster-state"]["ingress"] if each["ports"][0]["port"] == 7001]
    assert ends(rule, "from") == ["coordinator", "namespace ml"]


def test_dns_can_be_restricted_to_pods() -> None:
    for component, spec in policies("everything").items():
        found = [rule for rule in spec["egress"] if {port["port"] for port in rule["ports"]} == {5353}]
        assert [ends(rule, "to") for rule in found] == [["namespace openshift-dns"]], component
        assert {port["protocol"] for port in found[0]["ports"]} == {"UDP", "TCP"}
        assert not any(port["port"] in DNS for rule in spec["egress"] for port in rule["ports"]), component


@pytest.mark.parametrize(
    ("endpoint", "protocol", "port"),
    [
        ("http://collector.tracing", "grpc", 4317),
        ("https://collector.tracing/path", "http/protobuf", 443),
        ("http://collector.tracing", "http/protobuf", 80),
        ("http://collector.tracing:9000/at:80/", "http/protobuf", 9000),
        ("http://[fd00::1]:9000", "grpc", 9000),
    ],
)
def test_trace_egress_uses_the_endpoints_port(endpoint: str, protocol: str, port: int) -> None:
    made = rendered(f"tracing: {{endpoint: '{endpoint}', protocol: {protocol}}}")
    spec = of_kind(made, "NetworkPolicy")["muster-placement"]["spec"]
    reached = {each["port"] for rule in spec["egress"] if ends(rule, "to") == [ANYWHERE] for each in rule["ports"]}
    assert reached == DNS | {port}
