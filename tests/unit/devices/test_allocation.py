"""Devices are allocated to the claims of a pod, counted on many nodes, and never twice."""

from collections.abc import Sequence

import msgspec

from builders.devices.facts import claim, cluster, device, gpus, mig, node, way
from muster.devices.allocation import Answer, Devices, held, usable_on
from muster.devices.extended_resources import classes_by_resource
from muster.devices.facts import (
    Allocation,
    Claim,
    Constraint,
    DeviceClass,
    DeviceId,
    DeviceResult,
    DeviceToleration,
    Request,
    Slice,
    Unsupported,
)
from muster.devices.search import Outcome
from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, NodeSelectorTerm, TolerationOperator

N1 = node("n1")
ONLY_N1 = (NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, ("n1",)),)),)


def chosen(answer: Answer) -> list[list[str]]:
    assert answer.outcome is Outcome.FOUND, answer
    return [[each.id.device for each in one.results] for one in answer.allocations]


def counts(devices: Devices, nodes: Sequence[NodeFacts], claims: Sequence[Claim], limit: int) -> list[int]:
    return [devices.how_many(each, claims, limit).number for each in nodes]


def take(devices: Devices, answer: Answer) -> None:
    devices.allocate_ids(each.id for one in answer.allocations for each in one.results if not each.admin_access)


def test_the_first_free_devices_are_chosen() -> None:
    devices = cluster(gpus("n1", 4))
    devices.allocate_ids([DeviceId("gpu", "n1", "gpu-0")])
    answer = devices.allocate(N1, [claim(way(2))])
    assert chosen(answer) == [["gpu-1", "gpu-2"]]
    assert answer.allocations[0].node_selector == ONLY_N1
    assert answer.allocations[0].results[0].request == "r0"
    devices.release_ids([DeviceId("gpu", "n1", "gpu-0")])
    assert chosen(devices.allocate(N1, [claim(way(4))])) == [["gpu-0", "gpu-1", "gpu-2", "gpu-3"]]


def test_no_more_than_there_are() -> None:
    assert cluster(gpus("n1", 2)).allocate(N1, [claim(way(3))]).outcome is Outcome.IMPOSSIBLE
    assert cluster().allocate(N1, [claim(way(1))]).outcome is Outcome.IMPOSSIBLE


def test_a_pod_without_requests_needs_no_device() -> None:
    devices = cluster()
    assert chosen(devices.allocate(N1, [claim()])) == [[]]
    assert devices.how_many(N1, [claim()], 7).number == 7


def test_a_flexible_request_leaves_scarce_devices_to_others() -> None:
    fast = Slice("f", "gpu", "f", node_name="n1", devices=(device("fast", speed="high"), device("slow", speed="low")))
    answer = cluster(fast).allocate(N1, [claim(way(1), way(1, "speed=high"))])
    assert chosen(answer) == [["slow", "fast"]]


def test_mode_all_takes_every_selected_device_if_all_are_free() -> None:
    devices = cluster(gpus("n1", 3))
    everything = claim(way(0))
    assert chosen(devices.allocate(N1, [everything])) == [["gpu-0", "gpu-1", "gpu-2"]]
    assert devices.how_many(N1, [everything], 5).number == 1
    devices.allocate_ids([DeviceId("gpu", "n1", "gpu-2")])
    assert devices.allocate(N1, [everything]).outcome is Outcome.IMPOSSIBLE
    assert cluster().allocate(N1, [everything]).outcome is Outcome.IMPOSSIBLE, "at least one"
    assert cluster(gpus("n1", 33)).allocate(N1, [everything]).outcome is Outcome.IMPOSSIBLE, "at most 32 in a claim"


def test_mode_all_needs_complete_pools() -> None:
    partial = Slice("x", "nic", "p", count=2, node_name="n1", devices=(device("x", kind="nic"),))
    devices = cluster(gpus("n1", 1), partial)
    assert devices.allocate(N1, [claim(way(0))]).outcome is Outcome.IMPOSSIBLE
    assert devices.allocate(N1, [claim(way(1))]).outcome is Outcome.FOUND


def test_admin_access_ignores_allocations_and_holds_nothing() -> None:
    devices = cluster(gpus("n1", 2))
    devices.allocate_ids([DeviceId("gpu", "n1", "gpu-0"), DeviceId("gpu", "n1", "gpu-1")])
    monitor = claim(way(0, admin=True))
    answer = devices.allocate(N1, [monitor])
    assert chosen(answer) == [["gpu-0", "gpu-1"]]
    assert held([msgspec.structs.replace(monitor, allocation=answer.allocations[0])]) == set()
    assert devices.how_many(N1, [monitor], 3).number == 3


def test_admin_access_and_a_device_in_one_claim_are_different_devices() -> None:
    both = claim(way(1, admin=True), way(1))
    assert cluster(gpus("n1", 1)).allocate(N1, [both]).outcome is Outcome.IMPOSSIBLE
    (ids,) = chosen(cluster(gpus("n1", 2)).allocate(N1, [both]))
    assert sorted(ids) == ["gpu-0", "gpu-1"]


def test_taints_exclude_devices_unless_they_are_tolerated() -> None:
    broken = Slice("s", "gpu", "p", node_name="n1", devices=(device("a", taint="broken"),))
    toleration = DeviceToleration("broken", TolerationOperator.EXISTS)
    devices = cluster(broken)
    assert devices.allocate(N1, [claim(way(1))]).outcome is Outcome.IMPOSSIBLE
    answer = devices.allocate(N1, [claim(way(1, tolerations=(toleration,)))])
    assert answer.allocations[0].results[0].tolerations == (toleration,)


def test_alternatives_are_tried_in_order() -> None:
    request = Request("r", (way(2, name="two"), way(1, name="one")))
    prioritized = Claim("team", "c", requests=(request,))
    first = cluster(gpus("n1", 2)).allocate(N1, [prioritized]).allocations[0].results
    assert [each.request for each in first] == ["r/two", "r/two"]
    second = cluster(gpus("n1", 1)).allocate(N1, [prioritized]).allocations[0].results
    assert [each.request for each in second] == ["r/one"]


def test_devices_with_one_value_of_an_attribute() -> None:
    roots = ("x", "y", "y", "x", "y")
    parts = tuple(device(f"d{i}", root=root) for i, root in enumerate(roots))
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=(*parts, device("bare"))))
    match = (Constraint("root"),)
    assert chosen(devices.allocate(N1, [claim(way(3), constraints=match)])) == [["d1", "d2", "d4"]]
    assert devices.allocate(N1, [claim(way(4), constraints=match)]).outcome is Outcome.IMPOSSIBLE
    assert devices.how_many(N1, [claim(way(2), constraints=match)], 9).number == 2


def test_devices_with_distinct_values_of_an_attribute() -> None:
    parts = tuple(device(f"d{i}", root=root) for i, root in enumerate(("x", "x", "y")))
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=parts))
    distinct = (Constraint("root", distinct=True),)
    assert chosen(devices.allocate(N1, [claim(way(2), constraints=distinct)])) == [["d0", "d2"]]
    assert devices.allocate(N1, [claim(way(3), constraints=distinct)]).outcome is Outcome.IMPOSSIBLE


def test_thousands_of_devices_with_distinct_values_are_refuted_at_once() -> None:
    slices = [
        Slice(
            f"s{k}",
            "gpu",
            "p",
            count=32,
            node_name="n1",
            devices=tuple(device(f"d{k}-{i}", root=128 * k + i) for i in range(128)),
        )
        for k in range(32)
    ]
    devices = cluster(*slices, budget=10_000)
    assert devices.allocate(N1, [claim(way(2), constraints=(Constraint("root"),))]).outcome is Outcome.IMPOSSIBLE
    distinct = Constraint("root", distinct=True)
    assert devices.allocate(N1, [claim(way(2), constraints=(distinct,))]).outcome is Outcome.FOUND
    both = claim(way(2), way(2), constraints=(Constraint("root", False, ("r0",)), distinct))
    assert devices.allocate(N1, [both]).outcome is Outcome.IMPOSSIBLE
    hard = claim(way(2), way(2), constraints=(Constraint("root"),))
    assert devices.allocate(N1, [hard]).outcome is Outcome.IMPOSSIBLE


def test_true_and_1_are_different_values() -> None:
    parts = (device("a", root=True), device("b", root=1))
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=parts))
    assert devices.allocate(N1, [claim(way(2), constraints=(Constraint("root"),))]).outcome is Outcome.IMPOSSIBLE


def test_partitions_share_the_counters_of_their_card() -> None:
    devices = cluster(*mig("n1", 2))
    whole, half, quarter = way(kind="mig8"), way(kind="mig4"), way(kind="mig2")
    assert devices.how_many(N1, [claim(half)], 20).number == 4
    assert devices.how_many(N1, [claim(way(1, kind="mig1"))], 20).number == 16
    answer = devices.allocate(N1, [claim(half, half, half, quarter, quarter)])
    assert answer.outcome is Outcome.FOUND
    take(devices, answer)
    assert devices.allocate(N1, [claim(way(kind="mig1"))]).outcome is Outcome.IMPOSSIBLE
    assert devices.allocate(N1, [claim(whole)]).outcome is Outcome.IMPOSSIBLE


def test_a_search_that_exceeds_its_budget_says_so() -> None:
    devices = cluster(*mig("n1", 2), budget=3)
    request = claim(way(2, kind="mig4"), way(3, kind="mig2"))
    assert devices.allocate(N1, [request]).outcome is Outcome.NOT_FOUND
    assert not devices.how_many(N1, [request], 4).proved


def test_a_claim_that_is_shared_is_allocated_once() -> None:
    devices = cluster(gpus("n1", 3))
    common, own = claim(way(1), name="common"), claim(way(1), name="own")
    assert devices.how_many(N1, [common, own], 9, shared=1).number == 2
    answer = devices.allocate(N1, [common, own, common, claim(way(1), name="other")])
    assert chosen(answer) == [["gpu-0"], ["gpu-1"], ["gpu-2"]]


def test_an_allocated_claim_restricts_the_nodes() -> None:
    result = DeviceResult("r0", DeviceId("gpu", "n1", "gpu-0"))
    bound = msgspec.structs.replace(claim(way(1)), allocation=Allocation((result,), ONLY_N1))
    devices = cluster(gpus("n1", 2), gpus("n2", 2))
    devices.allocate_ids(held([bound]))
    assert usable_on(bound, N1)
    assert not usable_on(bound, node("n2"))
    assert devices.how_many(N1, [bound], 5).number == 5, "an allocated claim can be shared"
    assert devices.how_many(N1, [bound, claim(way(1), name="own")], 5).number == 1
    assert devices.how_many(node("n2"), [bound, claim(way(1), name="own")], 5).number == 0
    assert devices.allocate(node("n2"), [bound]).outcome is Outcome.IMPOSSIBLE


def test_the_node_selector_of_devices_that_no_node_owns() -> None:
    zone = NodeRequirement("zone", NodeOperator.IN, ("a",))
    everywhere = Slice("s", "gpu", "p", all_nodes=True, devices=(device("a"),))
    in_zone = Slice("t", "gpu", "q", node_selector=(NodeSelectorTerm((zone,)),), devices=(device("b"), device("c")))
    devices = cluster(everywhere, in_zone)
    assert devices.allocate(N1, [claim(way(1))]).allocations[0].node_selector is None
    answer = devices.allocate(node("n1", zone="a"), [claim(way(3))])
    assert answer.allocations[0].node_selector == (NodeSelectorTerm((zone,)),)


def test_a_failing_selector_excludes_the_device_and_forbids_mode_all() -> None:
    parts = (device("a"), device("b", speed="high"))
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=parts))
    assert chosen(devices.allocate(N1, [claim(way(1, "speed=high"))])) == [["b"]]
    assert devices.allocate(N1, [claim(way(0, "speed=high"))]).outcome is Outcome.IMPOSSIBLE


def test_unsupported_devices_are_left_alone() -> None:
    odd = msgspec.structs.replace(device("a"), unsupported=Unsupported.BINDING_CONDITIONS)
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=(odd, device("b"))))
    assert devices.how_many(N1, [claim(way(1))], 5).number == 1
    assert devices.allocate(N1, [claim(way(0))]).outcome is Outcome.IMPOSSIBLE


def test_a_missing_class_and_an_unsupported_request_are_named() -> None:
    devices = cluster(gpus("n1", 1))
    answer = devices.allocate(N1, [claim(way(1, kind="tpu"))])
    assert answer.reason == "ResourceClaim team/c, request r0: DeviceClass tpu does not exist"
    odd = msgspec.structs.replace(way(1), unsupported=Unsupported.CONSUMABLE_CAPACITY)
    assert devices.allocate(N1, [claim(odd)]).reason == (
        "ResourceClaim team/c is not supported: request r0: consumable capacity"
    )
    assert devices.how_many(N1, [claim(odd)], 5).number == 0


def test_counts_of_equal_nodes_are_computed_once() -> None:
    nodes = [node(f"n{i}") for i in range(50)]
    devices = cluster(*(gpus(each.name, 8) for each in nodes))
    assert counts(devices, nodes, [claim(way(3))], 10) == [2] * 50
    assert devices.computed == 1
    evaluations = devices.results.evaluations
    assert counts(devices, nodes, [claim(way(3), name="another")], 10) == [2] * 50
    assert (devices.computed, devices.results.evaluations) == (1, evaluations)
    assert counts(devices, nodes, [claim(way(3))], 1) == [1] * 50
    assert devices.computed == 2


def test_counts_follow_changes() -> None:
    nodes = [node("n1"), node("n2")]
    devices = cluster(gpus("n1", 8), gpus("n2", 8))
    one = [claim(way(1))]
    assert counts(devices, nodes, one, 10) == [8, 8]
    devices.allocate_ids([DeviceId("gpu", "n2", "gpu-3")])
    assert counts(devices, nodes, one, 10) == [8, 7]
    devices.put_slice(gpus("n1", 2))
    assert counts(devices, nodes, one, 10) == [2, 7]
    devices.remove_slice("n2")
    assert counts(devices, nodes, one, 10) == [2, 0]
    devices.remove_class("gpu")
    assert counts(devices, nodes, one, 10) == [0, 0]


def test_the_class_of_an_extended_resource() -> None:
    old, new = (
        DeviceClass("b", extended_resource="x/gpu"),
        DeviceClass("a", extended_resource="x/gpu", created_seconds=5),
    )
    tie = DeviceClass("c", extended_resource="x/gpu", created_seconds=5)
    found = classes_by_resource({each.name: each for each in (old, tie, new)})
    assert found["x/gpu"] is new
    assert found["deviceclass.resource.kubernetes.io/b"] is old


def test_a_claim_has_at_most_32_devices() -> None:
    devices = cluster(gpus("n1", 40))
    assert devices.allocate(N1, [claim(way(20), way(12))]).outcome is Outcome.FOUND
    assert devices.allocate(N1, [claim(way(20), way(13))]).outcome is Outcome.IMPOSSIBLE
    assert devices.how_many(N1, [claim(way(20), way(13))], 5).number == 0
    request = Request("any", (way(13, name="many"), way(2, name="few")))
    flexible = Claim("team", "c", requests=(Request("r", (way(20),)), request))
    assert devices.allocate(N1, [flexible]).allocations[0].results[-1].request == "any/few"


def test_a_device_that_binds_to_a_node_restricts_the_claim_to_it() -> None:
    parts = (msgspec.structs.replace(device("a"), binds_to_node=True),)
    devices = cluster(Slice("s", "gpu", "p", all_nodes=True, devices=parts))
    assert devices.allocate(N1, [claim(way(1))]).allocations[0].node_selector == ONLY_N1
