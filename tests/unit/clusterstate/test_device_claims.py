"""ResourceClaims are requests of pods for counted resources, and free devices are what nodes offer of them."""

from typing import Any

import pytest

from builders.clusterstate.history import History, node_object, pod_object
from builders.kube.devices import (
    DRIVER,
    Object,
    device_class_object,
    device_object,
    exactly,
    resource_claim_object,
    slice_object,
    using_claims,
)
from muster.clusterstate.device_claims import MAX_COLUMNS
from muster.clusterstate.recomputation import SLICE
from muster.devices.columns import MOST_PER_NODE
from muster.gangs.counted_resources import devices, is_device_resource
from muster.gangs.facts import NodeSelectorTerm, PodFacts
from muster.gangs.quantity import INT64_MAX
from muster.kube.api_resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from muster.rpc.watch_codec import encode_batch

GPUS = devices("gpu")
LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('80Gi')) >= 0"


def cluster(*slices: Object) -> History:
    history = History()
    history.put(NODES, node_object("n0"), node_object("n1"))
    history.put(DEVICE_CLASSES, device_class_object())
    history.put(RESOURCE_SLICES, *(slices or (slice_object("n0", 4), slice_object("n1", 2))))
    return history


def offered(history: History, node: str = "n0") -> dict[str, int]:
    return {name: count for name, count in history.state.nodes.facts[node].allocatable if is_device_resource(name)}


def requested(history: History, name: str = "x") -> dict[str, int]:
    pod_class = history.state.pods.classes[facts(history, name).class_id]
    return {resource: amount for resource, amount in pod_class.requests if is_device_resource(resource)}


def facts(history: History, name: str = "x") -> PodFacts:
    return history.state.pods.facts[f"uid-{name}"]


def problem(history: History, name: str = "x") -> str:
    """Why the pod waits."""
    return facts(history, name).problem


def claimed(history: History, *requests: Object, name: str = "x", **more: Any) -> None:
    """A pod with a claim of its own."""
    history.put(RESOURCE_CLAIMS, resource_claim_object(f"claim-{name}", *requests, **more))
    history.pods(pod_object(name, resourceClaims=using_claims(f"claim-{name}")))


def test_nodes_offer_free_devices_while_pods_claim_some() -> None:
    history = cluster()
    assert offered(history) == {}
    claimed(history, exactly(2))
    assert (requested(history), problem(history)) == ({GPUS: 2}, "")
    assert (offered(history), offered(history, "n1")) == ({GPUS: 4}, {GPUS: 2})
    history.remove(PODS, "uid-x")
    assert (offered(history), offered(history, "n1")) == ({}, {})


def test_huge_numbers_of_devices_add_up_to_what_a_message_can_carry() -> None:
    history = cluster()
    claimed(history, exactly(2**62), exactly(2**62), exactly(2**62))
    assert requested(history) == {GPUS: INT64_MAX}
    encode_batch(history.state.snapshot())


def test_a_pod_requests_its_devices_also_when_they_are_allocated() -> None:
    history = cluster()
    claimed(history, exactly(2))
    allocated = resource_claim_object("claim-x", exactly(2), on="n0", devices=("gpu-0", "gpu-1"), users=("uid-x",))
    history.put(RESOURCE_CLAIMS, allocated)
    assert (requested(history), offered(history)) == ({GPUS: 2}, {GPUS: 4})
    [[term]] = history.state.pods.classes[facts(history).class_id].volumes
    assert isinstance(term, NodeSelectorTerm)
    assert term.fields[0].values == ("n0",)
    claimed(history, exactly(1), name="y")
    history.remove(PODS, "uid-x")
    assert offered(history) == {GPUS: 2}
    history.remove(RESOURCE_CLAIMS, "uid-claim-ml-claim-x")
    assert offered(history) == {GPUS: 4}


@pytest.mark.parametrize("users", [("uid-stranger",), ("uid-x", "uid-stranger")])
def test_devices_that_others_use_are_not_offered(users: tuple[str, ...]) -> None:
    history = cluster()
    claimed(history, exactly(2))
    claimed(history, exactly(1), name="y")
    history.put(
        RESOURCE_CLAIMS, resource_claim_object("claim-x", exactly(2), on="n0", devices=("gpu-0", "gpu-1"), users=users)
    )
    assert (requested(history), offered(history)) == ({}, {GPUS: 2})


def test_selectors_of_a_request_are_counted_besides_its_class() -> None:
    history = cluster(slice_object("n0", [device_object("a", memory=80), device_object("b"), device_object("c")]))
    claimed(history, exactly(1, LARGE))
    [(selection, amount)] = [each for each in requested(history).items() if each[0] != GPUS]
    assert (requested(history)[GPUS], amount) == (1, 1)
    assert offered(history) == {GPUS: 3, selection: 1}


def test_tainted_devices_are_offered_to_requests_that_tolerate_the_taint() -> None:
    history = cluster(slice_object("n0", [device_object("a", taint="broken"), device_object("b")]))
    claimed(history, exactly(1))
    assert offered(history) == {GPUS: 1}
    claimed(history, exactly(1, tolerations=[{"key": "broken", "operator": "Exists"}]), name="y")
    [tolerant] = requested(history, "y")
    assert offered(history) == {GPUS: 1, tolerant: 2}


def test_claims_that_cannot_be_counted_are_one_resource_together() -> None:
    history = cluster(slice_object("n0", [device_object(str(i), board=i // 2) for i in range(4)]))
    same_board = [{"matchAttribute": f"{DRIVER}/board"}]
    claimed(history, exactly(2), constraints=same_board)
    [together] = [each for each in requested(history) if each != GPUS]
    assert (requested(history), offered(history)) == ({GPUS: 2, together: 1}, {GPUS: 4, together: 2})


def test_an_incomplete_pool_offers_nothing_until_its_last_slice() -> None:
    history = cluster(slice_object("n0", 4, count=2))
    claimed(history, exactly(1))
    assert offered(history) == {}
    rest = slice_object("more", [device_object("gpu-9")], node="n0", pool="n0", count=2)
    history.put(RESOURCE_SLICES, rest)
    assert offered(history) == {GPUS: 5}
    history.remove(RESOURCE_SLICES, "uid-slice-more")
    assert offered(history) == {}


def test_a_newer_generation_replaces_the_devices_and_the_driver_may_vanish() -> None:
    history = cluster()
    claimed(history, exactly(1))
    history.put(RESOURCE_SLICES, slice_object("n0", 1, generation=2))
    assert offered(history) == {GPUS: 1}
    history.remove(RESOURCE_SLICES, "uid-slice-n0")
    assert offered(history) == {}


def test_pools_that_select_nodes_follow_the_labels_of_nodes() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    history = cluster(slice_object("shared", 2, nodeSelector={"nodeSelectorTerms": terms}))
    claimed(history, exactly(1))
    assert offered(history) == {}
    history.put(NODES, node_object("n0", labels={"zone": "a"}))
    assert (offered(history), offered(history, "n1")) == ({GPUS: 2}, {})


def first_available(name: str, *subrequests: Object) -> Object:
    claim = resource_claim_object(name)
    claim["spec"]["devices"]["requests"] = [{"name": "r0", "firstAvailable": list(subrequests)}]
    return claim


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (resource_claim_object("c", deleting=True), 'ResourceClaim "c" is being deleted'),
        (
            resource_claim_object("c", exactly(1, device_class="none")),
            "ResourceClaim ml/c, request r0: DeviceClass none does not exist",
        ),
        (
            resource_claim_object("c", exactly(1, capacity={"requests": {"memory": "1Gi"}})),
            "ResourceClaim ml/c is not supported: request r0: consumable capacity",
        ),
        (
            first_available(
                "c", exactly(1, name="s0"), exactly(1, name="s1", capacity={"requests": {"memory": "1Gi"}})
            ),
            "ResourceClaim ml/c is not supported: request r0/s1: consumable capacity",
        ),
    ],
)
def test_a_claim_that_cannot_be_allocated_makes_its_pod_wait(claim: Object, reason: str) -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, claim)
    history.pods(pod_object("x", resourceClaims=using_claims("c")))
    assert problem(history) == reason
    history.put(RESOURCE_CLAIMS, resource_claim_object("c"))
    assert problem(history) == ""


def test_an_expression_with_an_error_is_quoted_in_the_reason() -> None:
    history = cluster()
    claimed(history, exactly(1, "device.nothing("))
    assert '"device.nothing("' in problem(history)


def test_a_claim_that_cannot_be_read_makes_its_pod_wait() -> None:
    history = cluster()
    broken = resource_claim_object("c")
    broken["spec"]["devices"]["requests"] = "all"
    history.put(RESOURCE_CLAIMS, broken)
    history.pods(pod_object("x", resourceClaims=using_claims("c")))
    assert '"all"' in problem(history)


def test_pods_wait_until_claims_are_created_from_templates() -> None:
    history = cluster()
    pod = pod_object("x", resourceClaims=using_claims("gpu", template="two-gpus"))
    history.pods(pod)
    assert problem(history) == ('waits for the ResourceClaim "gpu" to be created from ResourceClaimTemplate "two-gpus"')
    history.put(RESOURCE_CLAIMS, resource_claim_object("x-gpu-1", exactly(2), owner="uid-x"))
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "x-gpu-1"}]
    history.pods(pod)
    assert (problem(history), requested(history)) == ("", {GPUS: 2})


def test_a_claim_of_another_pods_template_is_not_used() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("stolen", owner="uid-y"))
    pod = pod_object("x", resourceClaims=using_claims("gpu", template="one"))
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "stolen"}]
    history.pods(pod)
    assert problem(history).startswith('ResourceClaim "stolen" was not created for the pod')


def test_of_many_selections_only_so_many_are_told_apart() -> None:
    history = cluster()
    for number in range(MAX_COLUMNS + 5):
        claimed(history, exactly(1, f"device.attributes['{DRIVER}'].index == {number}"), name=f"p{number}")
    history.put(RESOURCE_SLICES, slice_object("n0", [device_object("a", index=MAX_COLUMNS + 2)]))
    assert requested(history, f"p{MAX_COLUMNS + 2}") == {GPUS: 1}
    assert len(requested(history, "p0")) == 2
    assert history.state.sizes()["device_columns"] == MAX_COLUMNS


def test_an_expression_of_huge_cost_is_quoted_once_it_was_evaluated() -> None:
    ten = "[0,1,2,3,4,5,6,7,8,9]"
    costly = "true"
    for level in range(6):
        costly = f"{ten}.all(x{level}, {costly})"
    history = cluster()
    claimed(history, exactly(1, costly))
    claimed(history, name="y")
    history.review()
    assert problem(history).startswith(f'ResourceClaim "claim-x", request r0: CEL expression "{ten}.all(x5')
    assert "it costs more than 50000 units" in problem(history)
    assert problem(history, "y") == ""


def test_nodes_of_a_new_selection_are_recomputed_in_slices() -> None:
    """The claim appears after its pod, so that the pod is recomputed because of it."""
    number = 2 * SLICE
    history = History()
    history.put(NODES, *(node_object(f"n{i}") for i in range(number)))
    history.put(DEVICE_CLASSES, device_class_object())
    history.put(RESOURCE_SLICES, *(slice_object(f"n{i}", 1) for i in range(number)))
    history.pods(pod_object("x", resourceClaims=using_claims("claim-x")))
    history.review()
    batches = [history.put(RESOURCE_CLAIMS, resource_claim_object("claim-x"))]
    while history.state.has_work:
        batches.append(history.state.advance())
    assert sum(len(each.nodes) for each in batches) == number
    assert max(len(each.nodes) for each in batches) <= SLICE


def test_offers_of_a_large_pool_are_computed_after_its_slices_are_decoded() -> None:
    history = cluster()
    claimed(history)
    parts = [slice_object(f"part-{i}", 128, node="n0", pool="large", count=8) for i in range(8)]
    for part in parts:
        part["spec"]["devices"] = [device_object(f"{part['metadata']['name']}-{i}") for i in range(128)]
    batch = history.put(RESOURCE_SLICES, *parts)
    assert len(batch.device_objects) == len(parts)
    assert not batch.nodes
    assert history.state.has_work
    history.review()
    assert offered(history) == {GPUS: MOST_PER_NODE}


@pytest.mark.parametrize(("users", "own"), [((), True), (("uid-x",), True), (("uid-x", "uid-other"), False)])
def test_an_allocation_of_its_own_claim_does_not_restrict_a_pending_pod(users: tuple[str, ...], own: bool) -> None:
    history = cluster()
    pod = pod_object("x", resourceClaims=using_claims("gpu", template="two-gpus"))
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "x-gpu-1"}]
    history.put(RESOURCE_CLAIMS, resource_claim_object("x-gpu-1", exactly(2), owner="uid-x"))
    history.pods(pod)
    before = facts(history).class_id
    left = resource_claim_object("x-gpu-1", exactly(2), owner="uid-x", on="n0", devices=("gpu-0", "gpu-1"), users=users)
    history.put(RESOURCE_CLAIMS, left)
    assert (facts(history).class_id == before) is own
    assert len(history.state.pods.classes[facts(history).class_id].volumes) == (0 if own else 1)


def versions_of_two_writes(history: History, claim: Object) -> list[str]:
    versions = []
    for _ in range(2):
        history.put(RESOURCE_CLAIMS, claim)
        known = history.state.pods.devices.objects.claims["ml", "c"].facts
        assert known is not None
        versions.append(known.version)
    return versions


def test_allocated_claims_are_streamed_in_their_version() -> None:
    """Stale allocations are removed in the version that was observed."""
    before, after = versions_of_two_writes(cluster(), resource_claim_object("c", on="n0", devices=("gpu-0",)))
    assert before != after != ""


def test_a_new_version_of_a_claim_that_is_not_allocated_changes_nothing() -> None:
    """As the finalizer, which binding adds before the allocation."""
    before, after = versions_of_two_writes(cluster(), resource_claim_object("c", exactly(2)))
    assert before == after


def allocated_by_another(**of_result: Any) -> Object:
    """A claim that another scheduler allocated on n0."""
    wanted = exactly(1, capacity={"requests": {"memory": "1Gi"}})
    claim = resource_claim_object("c", wanted, on="n0", devices=("gpu-0",))
    claim["status"]["allocation"]["devices"]["results"][0].update(of_result)
    return claim


def test_a_share_of_a_device_that_is_allocated_is_used_on_its_node() -> None:
    """A claim with a request of capacity, which Muster does not allocate itself."""
    history = cluster()
    history.put(RESOURCE_CLAIMS, allocated_by_another(shareID="s", consumedCapacity={"memory": "1Gi"}))
    history.pods(pod_object("x", resourceClaims=using_claims("c")))
    assert (problem(history), requested(history)) == ("", {})
    assert len(history.state.pods.classes[facts(history).class_id].volumes) == 1


def test_an_allocated_claim_waits_for_its_binding_conditions() -> None:
    history = cluster()
    claim = allocated_by_another(bindingConditions=["attached"], bindingFailureConditions=["broken"])
    history.put(RESOURCE_CLAIMS, claim)
    history.pods(pod_object("x", resourceClaims=using_claims("c")))
    device = f"{DRIVER}/n0/gpu-0"
    assert problem(history) == (
        f'waits for ResourceClaim "c", as the binding condition "attached" of device {device} is not true'
    )
    reported = {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    for condition, reason in (("broken", f'"broken" of device {device} is true'), ("attached", "")):
        conditions = [{"type": condition, "status": "True"}]
        status = {**claim["status"], "devices": [{**reported, "conditions": conditions}]}
        history.put(RESOURCE_CLAIMS, {**claim, "status": status})
        assert problem(history).endswith(reason)
    assert problem(history) == ""
