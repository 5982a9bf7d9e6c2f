"""Quota usage of pods, scopes, and formatting of amounts."""

from typing import Any

import msgspec
import pytest

from muster.gangs.quantity import NANOS_PER_UNIT, parse_quantity
from muster.kube.objects import decode_pod
from muster.kube.resource_quota import (
    PodTraits,
    PodUsage,
    ScopeRequirement,
    decode_quota,
    pod_usage,
    quota_names,
    shown_amount,
    shown_amounts,
)

GI = 2**30 * NANOS_PER_UNIT


def used(*containers: dict[str, Any], **spec: Any) -> PodUsage:
    listed = [{"name": f"c{index}", "resources": each} for index, each in enumerate(containers)]
    return pod_usage(decode_pod(msgspec.json.encode({"spec": {"containers": listed, **spec}})))


def amounts(usage: PodUsage) -> dict[str, str]:
    return {name: shown_amount(name, nanos) for name, nanos in usage.amounts if name not in ("pods", "count/pods")}


def test_requests_and_limits_count_under_all_their_names() -> None:
    one = {"requests": {"cpu": "500m", "example.com/gpu": "2"}, "limits": {"cpu": "1", "example.com/gpu": "2"}}
    other = {"requests": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}, "limits": {"memory": "2Gi"}}
    assert amounts(used(one, other)) == {
        "cpu": "500m",
        "requests.cpu": "500m",
        "limits.cpu": "1",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.memory": "2Gi",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.example.com/gpu": "2",
    }
    assert dict(used(one).amounts)["pods"] == dict(used(one).amounts)["count/pods"] == NANOS_PER_UNIT


def test_init_containers_count_by_the_largest_plus_sidecars() -> None:
    def asking(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": f"init-{cpu}", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, **more}

    init = [asking("3"), asking("1", restartPolicy="Always")]
    small, large = {"requests": {"cpu": "1"}}, {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    assert amounts(used(small, initContainers=init))["cpu"] == "3"
    assert amounts(used(large, initContainers=init)) == {"cpu": "5", "requests.cpu": "5", "limits.cpu": "5"}


def test_overhead_is_added_only_to_existing_limits() -> None:
    limited = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    found = amounts(used(limited, overhead={"cpu": "250m", "memory": "1Gi"}))
    assert (found["cpu"], found["limits.cpu"], found["memory"]) == ("1250m", "2250m", "2Gi")
    assert "limits.memory" not in found


@pytest.mark.parametrize(
    ("scope", "meets", "not_so"),
    [
        (ScopeRequirement("Terminating", "Exists"), PodTraits(terminating=True), PodTraits()),
        (ScopeRequirement("NotTerminating", "Exists"), PodTraits(), PodTraits(terminating=True)),
        (ScopeRequirement("BestEffort", "Exists"), PodTraits(best_effort=True), PodTraits()),
        (ScopeRequirement("NotBestEffort", "Exists"), PodTraits(), PodTraits(best_effort=True)),
        (ScopeRequirement("CrossNamespacePodAffinity", "Exists"), PodTraits(cross_namespace=True), PodTraits()),
        (ScopeRequirement("PriorityClass", "In", ["a"]), PodTraits("a"), PodTraits("b")),
        (ScopeRequirement("PriorityClass", "NotIn", ["a"]), PodTraits("b"), PodTraits("a")),
        (ScopeRequirement("PriorityClass", "Exists"), PodTraits("a"), PodTraits()),
        (ScopeRequirement("PriorityClass", "DoesNotExist"), PodTraits(), PodTraits("a")),
    ],
    ids=lambda each: f"{each.scope_name}-{each.operator}" if isinstance(each, ScopeRequirement) else "",
)
def test_scopes_select_pods(scope: ScopeRequirement, meets: PodTraits, not_so: PodTraits) -> None:
    assert meets.meets([scope])
    assert not not_so.meets([scope])


def test_unknown_scope_matches_no_pod() -> None:
    assert not PodTraits().meets([ScopeRequirement("Sometimes", "Exists")])


def test_traits_of_a_pod() -> None:
    foreign = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["other"]}]}}
    pod = used({}, activeDeadlineSeconds=5, priorityClassName="high", affinity=foreign)
    assert pod.traits == PodTraits("high", terminating=True, best_effort=True, cross_namespace=True)
    own = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "namespace"}]}}
    assert used({"requests": {"cpu": "1"}}, affinity=own).traits == PodTraits()


def test_malformed_parts_of_a_quota_are_skipped() -> None:
    body = {"spec": {"hard": {"cpu": "2", "pods": 3, "memory": "lots"}, "scopes": ["BestEffort"]}}
    quota = decode_quota(msgspec.json.encode({**body, "status": {"used": {"cpu": "500m"}}}))
    assert quota.hard == {"cpu": 2 * NANOS_PER_UNIT, "pods": 3 * NANOS_PER_UNIT}
    assert quota.used == {"cpu": NANOS_PER_UNIT // 2}
    assert quota.requirements == (ScopeRequirement("BestEffort", "Exists"),)


@pytest.mark.parametrize(
    ("resource", "names"),
    [
        ("cpu", ("cpu", "requests.cpu")),
        ("requests.memory", ("memory", "requests.memory")),
        ("limits.cpu", ("limits.cpu",)),
        ("nvidia.com/gpu", ("requests.nvidia.com/gpu",)),
        ("pods", ("pods", "count/pods")),
    ],
)
def test_quota_names_of_a_resource(resource: str, names: tuple[str, ...]) -> None:
    assert quota_names(resource) == names


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("cpu", each) for each in ("1500m", "2", "1n", "0", "-2")),
        *(("memory", each) for each in ("1536Mi", "100")),
        *(("requests.storage", "3Gi"), ("pods", "12k"), ("limits.memory", "1Ki")),
    ],
)
def test_amounts_are_formatted_like_the_api_server(name: str, text: str) -> None:
    assert shown_amount(name, parse_quantity(text)) == text


def test_amounts_are_sorted_by_name() -> None:
    assert shown_amounts({"memory": GI, "cpu": NANOS_PER_UNIT}) == "cpu=1,memory=1Gi"
