"""What one pod may say about nodes and pods is bounded, since all of it is evaluated on every node (I12)."""

import json
from typing import Any

import pytest
from msgspec import Raw

from builders.kube.inter_pod_rules import affinity, labelled, spread, term
from builders.kube.objects import container, pod, sidecar
from muster.kube.objects import decode_pod
from muster.kube.pod_class import MAX_AMOUNTS, MAX_CONTAINERS, MAX_FIELD_BYTES, read_class
from muster.kube.volume_facts import MAX_CLAIMS, claims_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def zone(*values: str) -> dict[str, Any]:
    return {"key": "zone", "operator": "In", "values": list(values)}


def on_nodes(*terms: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def several(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]


TOO_MUCH = {
    "terms of node affinity": (
        on_nodes(*({"matchExpressions": [zone(each)]} for each in several(101))),
        "it has 101 terms of node affinity: at most 100 are supported",
    ),
    "requirements": (
        {
            **on_nodes({"matchExpressions": [zone(each) for each in several(150)]}),
            "nodeSelector": dict.fromkeys(several(51), ""),
        },
        "it has 201 requirements in nodeSelector and node affinity: at most 200 are supported",
    ),
    "tolerations": (
        {"tolerations": [{"key": each, "operator": "Exists"} for each in several(501)]},
        "it has 501 tolerations: at most 500 are supported",
    ),
    "inter-pod rules": (
        {
            "affinity": affinity(away=[term(labelled(app=each)) for each in several(60)]),
            "topologySpreadConstraints": [spread(labelled(app=each)) for each in several(41)],
        },
        "it has 101 terms of pod affinity and topologySpreadConstraints: at most 100 are supported",
    ),
    "host ports": (
        {"initContainers": [sidecar("s", {}) | {"ports": [{"hostPort": each} for each in range(1, 502)]}]},
        "it has 501 host ports: at most 500 are supported",
    ),
    "bytes": (
        on_nodes({"matchExpressions": [zone("x" * MAX_FIELD_BYTES)]}),
        f"affinity has 131231 bytes: at most {MAX_FIELD_BYTES} are read",
    ),
}


@pytest.mark.parametrize(("spec", "problem"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_too_much_is_a_problem_and_not_read(spec: dict[str, Any], problem: str) -> None:
    read = read_class(pod(spec={"containers": [container(requests={"cpu": "2"})], **spec}))
    alone = read_class(pod(spec={"containers": [container(requests={"cpu": "2"})]}))
    assert (read.problem, read.selectors) == (problem, ())
    assert read.pod_class == alone.pod_class


@pytest.mark.parametrize(("count", "problem"), [(100, ""), (101, "it has 101 labels: at most 100 are supported")])
def test_too_many_labels_are_a_problem_and_not_read(count: int, problem: str) -> None:
    labels = dict.fromkeys(several(count), "")
    read = decode_pod(json.dumps({"metadata": {"name": "p", "uid": "u", "labels": labels}, "spec": {}}).encode())
    assert (read.problem, read.metadata.name, read.metadata.labels) == (problem, "p", None if problem else labels)


def test_a_malformed_pod_with_too_many_labels_has_both_problems() -> None:
    pod = {"metadata": {"uid": "u", "labels": dict.fromkeys(several(101), "")}, "spec": {"priority": "high"}}
    assert "priority" in (problem := decode_pod(json.dumps(pod).encode()).problem)
    assert problem.endswith("it has 101 labels: at most 100 are supported")


def test_list_of_all_nodes_of_a_large_cluster_is_read() -> None:
    names = [f"node-{number:04}.cluster.local" for number in range(4000)]
    read = read_class(pod(spec=on_nodes({"matchExpressions": [zone(*names)]})))
    assert read.problem == ""
    assert read.pod_class.required_node_affinity is not None
    assert read.pod_class.required_node_affinity[0].labels[0].values == tuple(names)


def test_rules_of_another_schedulers_pod_are_bounded_too() -> None:
    spec = {"affinity": affinity(away=[term(labelled(app=each)) for each in several(101)])}
    assert read_class(pod(spec=spec), ours=False).pod_class.required_pod_anti_affinity == ()


def test_first_of_too_many_containers_count_on_the_node_of_a_bound_pod() -> None:
    containers = [container(each, requests={"cpu": "1"}) for each in several(MAX_CONTAINERS - 1)]
    sidecars = [sidecar(f"s{each}", {"cpu": "1"}) for each in several(2)]
    read = read_class(pod(spec={"containers": containers, "initContainers": sidecars}))
    assert read.problem == f"it has {MAX_CONTAINERS + 1} containers: at most {MAX_CONTAINERS} are supported"
    assert dict(read.pod_class.requests)["cpu"] == 1000 * MAX_CONTAINERS
    fewer = read_class(pod(spec={"containers": containers, "initContainers": sidecars[:1]}))
    assert (fewer.problem, fewer.pod_class) == ("", read.pod_class)


def test_first_of_too_many_amounts_count_on_the_node_of_a_bound_pod() -> None:
    requests = {"cpu": "1", **{f"example.com/{each}": "1" for each in several(98)}}
    read = read_class(pod(spec={"containers": [container(each, requests=requests) for each in several(200)]}))
    assert read.problem.startswith(f"resources of its containers have 20000 amounts: at most {MAX_AMOUNTS} are read")
    assert dict(read.pod_class.requests)["cpu"] == 1000 * (MAX_AMOUNTS // 100)


def test_claims_beyond_the_limit_are_a_problem() -> None:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in several(MAX_CLAIMS + 1)]
    problems: list[str] = []
    claims = claims_of(Raw(json.dumps(volumes).encode()), "pod-0", problems)
    assert len(claims) == MAX_CLAIMS
    assert problems == ["it uses 257 PersistentVolumeClaims: at most 256 are supported"]


def test_few_of_many_malformed_fields_are_named() -> None:
    wrong = [{"key": each, "operator": "Near"} for each in several(90)]
    problem = read_class(pod(spec=on_nodes({"matchExpressions": wrong}))).problem
    assert problem.count("operator") == 10
    assert problem.endswith("; and 80 more")
