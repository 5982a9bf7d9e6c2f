"""Caches of decoded fields are bounded in bytes: large and ever new entries do not fill the memory."""

import json
from typing import Any

import pytest

from builders.clusterstate.history import node_object, pod_object
from muster.dialects import registry
from muster.gangs import quantity
from muster.kube import gang_marks, inter_pod_rules, node_facts, pod_class, resource_quota, timestamps
from muster.kube.objects import decode_node, decode_pod

CACHES: list[Any] = [
    pod_class._cached_class,
    pod_class._shared,
    node_facts._allocatable,
    resource_quota._amounts,
    gang_marks._name_of_group,
    inter_pod_rules._shared_label_keys,
    registry.membership_of,
]
MIB = 1024 * 1024


def amounts(number: int, count: int) -> dict[str, str]:
    return {f"example.com/{number}-{each}": "1" for each in range(count)}


def large_pod(number: int, count: int) -> bytes:
    """A pod of which every cached field is large and new."""
    terms = [{"topologyKey": f"k-{number}-{each}", "matchLabelKeys": [f"l-{each}"]} for each in range(count)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    labels = {f"sakkara.group.constraint.type.{number}-{each}": "pack" for each in range(count)}
    pod = pod_object(
        f"p-{number}",
        labels=labels | {"sakkara.group.name": "g"},
        affinity=affinity,
        schedulingGroup={"podGroupName": "g" * count},
    )
    pod["spec"]["containers"][0]["resources"]["requests"] = amounts(number, count)
    pod["metadata"]["resourceVersion"] = "5"
    return json.dumps(pod).encode()


@pytest.mark.parametrize("count", [40, 2_000])
def test_ever_new_pods_and_nodes_are_bounded_in_bytes(count: int) -> None:
    for number in range(40_000 // count):
        pod = decode_pod(large_pod(number, count))
        pod_class.read_class(pod)
        resource_quota.pod_usage(pod)
        registry.membership_of(gang_marks.gang_marks(pod))
        node = node_object(f"n-{number}")
        node["metadata"]["resourceVersion"] = "5"
        node["status"]["allocatable"] = amounts(number, count)
        node_facts.node_facts(decode_node(json.dumps(node).encode()))
        assert all(cache.used_bytes <= 24 * MIB for cache in CACHES)
    assert sum(cache.used_bytes for cache in CACHES) <= 96 * MIB


@pytest.mark.parametrize("length", [65, 4_000])
def test_long_texts_are_not_kept(length: int) -> None:
    before = quantity._cached.cache_info().currsize, timestamps._parsed.cache_info().currsize
    assert quantity.parse_quantity("1" + "0" * length) == quantity.INT64_MAX * quantity.NANOS_PER_UNIT
    with pytest.raises(timestamps.BadTimestamp):
        timestamps.parse_timestamp("2" * length)
    assert (quantity._cached.cache_info().currsize, timestamps._parsed.cache_info().currsize) == before
