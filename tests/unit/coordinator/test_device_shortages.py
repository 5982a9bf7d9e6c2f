"""Explanations say which request of which claim finds no device, and who has the devices."""

import msgspec
import pytest
from msgspec.structs import replace

from builders.core.objects import pod_class
from builders.core.scenario import Scenario
from builders.devices.facts import claim, way
from builders.devices.streamed import GPU, allocated, claim_object, class_object, slice_object
from builders.gangs.facts import gang
from muster.coordinator.core.report.device_shortages import (
    MAX_KINDS,
    ClaimedDevices,
    claimed_devices,
    name_device_request,
)
from muster.coordinator.core.slices import run_to_end
from muster.devices.columns import columns_of
from muster.devices.facts import Alternative, Claim, Constraint, Device, DeviceClass, Request, Slice, Unsupported
from muster.gangs.counted_resources import is_searched
from muster.gangs.facts import Amounts, DeviceObject, DeviceObjectKind, PodFacts
from muster.gangs.solve import Explanation

MISSING = "device.attributes['gpu'].speed == 'high'"


def cluster(devices: int = 4, **claims: Claim) -> Scenario:
    """A node with devices, and a gang of one pod for each claim, pending because the node is full."""
    scenario = Scenario({"n0": 1})
    scenario.change(device_objects=[slice_object("n0", devices), class_object()])
    for name, each in claims.items():
        waiting(scenario, name, each)
    return scenario


def waiting(scenario: Scenario, name: str, *wanted: Claim) -> list[PodFacts]:
    """A gang that is too large for the cluster, whose pods have these claims."""
    built = gang(name).of(len(wanted))
    made, pods = [], []
    for pod, each in zip(built.pods(), wanted, strict=True):
        own = replace(each, namespace=pod.namespace, name=f"{pod.name}-gpus", uid=f"uid-{pod.name}", owner=pod.uid)
        requests: Amounts = tuple(sorted({**dict(pod_class(8).requests), **columns_of([own]).amounts}.items()))
        kind = replace(pod_class(8), id=f"class-{hash(requests)}", requests=requests)
        scenario.change(classes=[kind])
        pods.append(replace(pod, class_id=kind.id, device_claims=(own.name,)))
        made.append(claim_object(own))
    scenario.change(gangs=[built.gang_facts()], pods=pods, device_objects=made)
    return pods


def explained(scenario: Scenario, name: str) -> list[ClaimedDevices]:
    return run_to_end(claimed_devices(scenario.leader.cache, scenario.gang(name)))


def brief(scenario: Scenario, name: str) -> str:
    """Words that are added to an explanation that the resources of the gang's claims are missing."""
    [pod, *_] = scenario.gang(name).pending.values()
    requests = scenario.leader.cache.ledger.classes[pod.class_id].requests
    given = Explanation("0 fit", scenario.gang(name).id, pod.class_id, short_by=requests)
    return name_device_request(given, scenario.leader.cache).summary.removeprefix("0 fit")


def one(*ways: Alternative, constraints: tuple[Constraint, ...] = ()) -> Claim:
    return claim(*ways, constraints=constraints)


def test_devices_are_explained_by_kind_of_claims() -> None:
    scenario = cluster(4)
    waiting(scenario, "a", one(way(5)), one(way(5)), one(way(6)))
    first, second = explained(scenario, "a")
    assert (first.pod.name, first.pods, second.pod.name, second.pods) == ("a-0", 2, "a-2", 1)
    (request,) = first.requests
    assert (request.wanted, request.devices, request.matching, request.free) == (5, 4, 4, 4)
    assert first.would_help == [
        "for request r0 of ResourceClaim default/a-0-gpus: "
        'more devices of class "gpu" that match, at least 5 on one node'
    ]


def test_gangs_and_claims_that_have_the_devices_are_named() -> None:
    scenario = cluster(4)
    pods = waiting(scenario, "b", one(way(2)))
    theirs = replace(one(way(2)), namespace="default", name="b-0-gpus", uid="uid-b-0", reserved_for=(pods[0].uid,))
    stranger = replace(one(way(1)), name="stranger", uid="stranger")
    scenario.change(
        device_objects=[
            claim_object(allocated(theirs, "gpu-0", "gpu-1")),
            claim_object(allocated(stranger, "gpu-2")),
        ]
    )
    waiting(scenario, "a", one(way(2)))
    [found] = explained(scenario, "a")
    assert found.requests[0].holders == (("gang default/b", 2), ("ResourceClaim team/stranger", 1))
    assert found.would_help == [
        "for request r0 of ResourceClaim default/a-0-gpus: "
        "devices that are taken become free: gang default/b (2), ResourceClaim team/stranger (1)"
    ]


def test_devices_on_nodes_that_are_filtered_out_are_elsewhere() -> None:
    scenario = cluster(2)
    waiting(scenario, "a", one(way(1)))
    scenario.change(nodes=[replace(scenario.cluster.nodes["n0"], unschedulable=True)])
    [found] = explained(scenario, "a")
    assert (found.requests[0].elsewhere, found.requests[0].free) == (2, 0)


def test_a_constraint_that_no_node_meets_is_named() -> None:
    scenario = cluster(2)
    waiting(scenario, "a", one(way(2), constraints=(Constraint("gpu/board"),)))
    [found] = explained(scenario, "a")
    assert found.conflict.why.endswith('constraint matchAttribute "gpu/board" of ResourceClaim default/a-0-gpus')
    assert found.would_help == ['without the constraint matchAttribute "gpu/board", 1 node has devices for a pod']


def test_of_many_kinds_of_claims_only_some_are_explained() -> None:
    scenario = cluster(1)
    waiting(scenario, "a", *(one(way(number)) for number in range(2, MAX_KINDS + 4)))
    found = explained(scenario, "a")
    assert [bool(each.requests) for each in found] == [True] * MAX_KINDS + [False] * 2


def test_gangs_without_claims_have_no_devices_to_explain() -> None:
    scenario = Scenario({"n0": 1})
    scenario.add(gang("a").of(4))
    assert explained(scenario, "a") == []


def test_a_condition_names_the_request_and_what_is_free() -> None:
    scenario = cluster(2, a=one(way(5)))
    offer(scenario, "a", 2)
    assert brief(scenario, "a") == (
        '; request "r0" of ResourceClaim "a-0-gpus" wants 5, 2 are free, at most 2 on one node'
    )


def test_a_condition_quotes_the_selector_that_matches_nothing() -> None:
    other = GPU.replace("== 'gpu'", "!= 'gpu'")
    scenario = cluster(2, a=one(way(1, other)))
    assert brief(scenario, "a") == (
        f'; request "r0" of ResourceClaim "a-0-gpus" wants 1, 0 are free; none matches "{other}"'
    )


def test_a_condition_quotes_the_error_of_a_selector() -> None:
    scenario = cluster(2, a=one(way(1, MISSING)))
    text = brief(scenario, "a")
    assert text.startswith('; request "r0" of ResourceClaim "a-0-gpus" wants 1, 0 are free: ')
    assert MISSING in text


def test_a_condition_names_claims_that_are_only_allocated_together() -> None:
    scenario = cluster(2, a=one(way(2), constraints=(Constraint("gpu/board"),)))
    requests = scenario.leader.cache.ledger.classes[class_of(scenario, "a")].requests
    [searched] = [name for name, _ in requests if is_searched(name)]
    given = Explanation("0 fit", scenario.gang("a").id, class_of(scenario, "a"), short_by=((searched, 1),))
    summary = name_device_request(given, scenario.leader.cache).summary
    assert summary == '0 fit; ResourceClaims like "a-0-gpus": no node has devices for them'


def odd_slice(feature: Unsupported | None) -> DeviceObject:
    """One GPU of a node with the feature."""
    devices = (Device("odd", "gpu", {"gpu/kind": "gpu"}, unsupported=feature),)
    content = msgspec.json.encode(Slice("odd", "gpu", "n0-odd", node_name="n0", devices=devices))
    return DeviceObject(DeviceObjectKind.SLICE, "odd", content)


@pytest.mark.parametrize("feature", [Unsupported.BINDING_CONDITIONS, Unsupported.CONSUMABLE_CAPACITY])
def test_a_condition_names_a_feature_of_devices_that_is_not_supported(feature: Unsupported) -> None:
    scenario = cluster(0, a=one(way(1)))
    scenario.change(device_objects=[odd_slice(feature)])
    assert brief(scenario, "a") == (
        '; request "r0" of ResourceClaim "a-0-gpus" wants 1, 0 are free; '
        f"devices with {feature} are not supported, such as gpu/n0-odd/odd"
    )
    [found] = explained(scenario, "a")
    assert (found.requests[0].unsupported, found.requests[0].features) == (1, (feature,))
    assert found.would_help == [
        f"for request r0 of ResourceClaim default/a-0-gpus: drivers publish devices without {feature}"
    ]
    scenario.change(device_objects=[odd_slice(None)])
    assert "not supported" not in brief(scenario, "a")


def test_a_condition_names_no_feature_of_devices_that_the_claim_does_not_select() -> None:
    scenario = cluster(0, a=one(way(1, GPU.replace("== 'gpu'", "!= 'gpu'"))))
    scenario.change(device_objects=[odd_slice(Unsupported.BINDING_CONDITIONS)])
    assert "not supported" not in brief(scenario, "a")


@pytest.mark.parametrize(
    "wanted",
    [
        one(way(0)),
        one(way(1), constraints=(Constraint("gpu/board"),)),
        Claim("team", "c", requests=(Request("r0", (way(2, name="two"), way(1, name="one"))),)),
    ],
    ids=["all", "constraint", "first available"],
)
def test_a_condition_of_claims_together_names_a_feature_that_is_not_supported(wanted: Claim) -> None:
    scenario = cluster(0, a=wanted)
    scenario.change(device_objects=[odd_slice(Unsupported.BINDING_CONDITIONS)])
    requests = scenario.leader.cache.ledger.classes[class_of(scenario, "a")].requests
    [searched] = [name for name, _ in requests if is_searched(name)]
    given = Explanation("0 fit", scenario.gang("a").id, class_of(scenario, "a"), short_by=((searched, 1),))
    summary = name_device_request(given, scenario.leader.cache).summary
    assert summary.endswith("; devices with binding conditions are not supported, such as gpu/n0-odd/odd")


def test_a_condition_names_a_feature_of_devices_for_an_extended_resource() -> None:
    scenario = Scenario({"n0": 1})
    backing = DeviceClass("gpu", (GPU,), extended_resource="example.com/gpu")
    scenario.change(
        device_objects=[
            odd_slice(Unsupported.CONSUMABLE_CAPACITY),
            DeviceObject(DeviceObjectKind.CLASS, "gpu", msgspec.json.encode(backing)),
        ]
    )
    scenario.add(gang("a").of(2))
    given = Explanation("0 fit", scenario.gang("a").id, class_of(scenario, "a"), short_by=(("example.com/gpu", 1),))
    assert name_device_request(given, scenario.leader.cache).summary == (
        "0 fit; devices with consumable capacity are not supported, such as gpu/n0-odd/odd"
    )


def class_of(scenario: Scenario, name: str) -> str:
    return next(iter(scenario.gang(name).pending.values())).class_id


def offer(scenario: Scenario, name: str, number: int) -> None:
    """The node offers devices for the gang's claims."""
    requests = scenario.leader.cache.ledger.classes[class_of(scenario, name)].requests
    own = [(resource, number) for resource, _ in requests if resource.startswith("devices-")]
    node = scenario.cluster.nodes["n0"]
    scenario.change(nodes=[replace(node, allocatable=tuple(sorted((*node.allocatable, *own))))])
