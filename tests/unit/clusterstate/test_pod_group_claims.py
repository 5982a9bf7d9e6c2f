"""ResourceClaims of PodGroups (scheduling.k8s.io): one for all pods of the group, reserved for the PodGroup."""

from typing import Any

import msgspec

from builders.clusterstate.history import NATIVE_POD_GROUPS, History, native_pod_group_object, node_object, pod_object
from builders.kube.devices import (
    Object,
    device_class_object,
    exactly,
    resource_claim_object,
    slice_object,
    using_claims,
)
from muster.clusterstate.device_claim_users import MAX_USERS
from muster.devices.facts import Claim
from muster.devices.reach import HOSTNAME
from muster.gangs.counted_resources import devices, is_device_resource
from muster.gangs.facts import DeviceObjectKind, PodClass, PodFacts
from muster.kube.api_resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

GPUS = devices("gpu")
FROM_TEMPLATE = using_claims("gpu", template="two-gpus")


def cluster() -> History:
    history = History()
    history.put(NODES, node_object("n0"), node_object("n1"))
    history.put(DEVICE_CLASSES, device_class_object())
    history.put(RESOURCE_SLICES, slice_object("n0", 4), slice_object("n1", 4))
    return history


def put_group(history: History, claims: list[Object], created: str = "", **more: Any) -> None:
    """The PodGroup "g"; `created`: the claim that was created from its template."""
    group = native_pod_group_object("g", {"gang": {"minCount": 2}}, resourceClaims=claims, **more)
    if created:
        group["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": created}]}
    history.put(NATIVE_POD_GROUPS, group)


def put_pods(history: History, *names: str, claims: list[Object] = FROM_TEMPLATE, **more: Any) -> None:
    for name in names:
        history.pods(pod_object(name, schedulingGroup={"podGroupName": "g"}, resourceClaims=claims, **more))


def facts(history: History, name: str) -> PodFacts:
    return history.state.pods.facts[f"uid-{name}"]


def pod_class(history: History, name: str) -> PodClass:
    return history.state.pods.classes[facts(history, name).class_id]


def requested(history: History, name: str) -> dict[str, int]:
    return {resource: amount for resource, amount in pod_class(history, name).requests if is_device_resource(resource)}


def claim(**more: Any) -> Object:
    return resource_claim_object("g-gpu-1", exactly(2), owner="uid-native-g", **more)


def test_pods_wait_for_the_claim_of_their_group_and_share_it() -> None:
    history = cluster()
    put_pods(history, "x", "y")
    put_group(history, FROM_TEMPLATE)
    reason = 'waits for the ResourceClaim "gpu" of PodGroup "g" to be created from ResourceClaimTemplate "two-gpus"'
    assert facts(history, "x").problem == facts(history, "y").problem == reason
    history.put(RESOURCE_CLAIMS, claim())
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    for name in ("x", "y"):
        of_pod = facts(history, name)
        assert (of_pod.problem, of_pod.device_claims, of_pod.group_claims) == ("", ("g-gpu-1",), ("g-gpu-1",))
        assert (of_pod.group_name, of_pod.group_uid) == ("g", "uid-native-g")
        [term] = pod_class(history, name).shared_claims
        assert term.topology_key == HOSTNAME
        assert history.state.pods.classes.named_by(of_pod.class_id)[0].id == term.selector
    assert (requested(history, "x"), requested(history, "y")) == ({GPUS: 2}, {})


def test_pods_of_a_group_are_selected_by_the_affinity_of_its_claim() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, claim())
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    put_pods(history, "x", "y")
    [selector] = history.state.pods.classes.selectors
    label_sets = {each.id: each for each in history.state.pods.label_sets.all()}
    for name in ("x", "y"):
        assert selector.selects("ml", {}, label_sets[facts(history, name).label_set].labels)


def test_the_claim_of_a_group_is_not_limited_to_so_many_pods() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, claim())
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    names = [f"p{number:03}" for number in range(MAX_USERS + 2)]
    put_pods(history, *names)
    assert {facts(history, name).problem for name in names} == {""}


def test_a_claim_that_is_reserved_for_the_group_is_counted_with_its_pods() -> None:
    history = cluster()
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    put_pods(history, "x", "y")
    allocated = claim(on="n0", devices=("gpu-0", "gpu-1"))
    allocated["status"]["reservedFor"] = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-native-g"}
    ]
    history.put(RESOURCE_CLAIMS, allocated)
    assert (requested(history, "x"), requested(history, "y")) == ({GPUS: 2}, {})
    assert dict(history.state.nodes.facts["n0"].allocatable)[GPUS] == 4
    put_pods(history, "y", node="n0")
    assert (requested(history, "x"), requested(history, "y")) == ({}, {GPUS: 2})
    assert facts(history, "y").group_claims == ()


def is_idle(history: History) -> bool:
    """As it is streamed."""
    content = history.state.pods.devices.objects.streamed[DeviceObjectKind.CLAIM, "ml/g-gpu-1"].content
    return msgspec.json.decode(content, type=Claim).idle


def reserved_for_group() -> Object:
    found = claim(on="n0", devices=("gpu-0", "gpu-1"))
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-native-g"}
    found["status"]["reservedFor"] = [user]
    return found


def test_a_claim_of_a_group_is_idle_until_one_of_its_pods_is_bound() -> None:
    history = cluster()
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    put_pods(history, "x", "y")
    history.put(RESOURCE_CLAIMS, claim())
    assert not is_idle(history)
    history.put(RESOURCE_CLAIMS, reserved_for_group())
    assert is_idle(history)
    put_pods(history, "y", node="n0")
    assert not is_idle(history)
    history.remove(PODS, "uid-y")
    assert is_idle(history)


def test_a_claim_of_a_group_is_used_by_bound_pods_of_other_schedulers() -> None:
    history = cluster()
    put_pods(history, "theirs", node="n0", schedulerName="default-scheduler")
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    put_pods(history, "x")
    history.put(RESOURCE_CLAIMS, reserved_for_group())
    assert not is_idle(history)
    history.remove(PODS, "uid-theirs")
    assert is_idle(history)
    put_pods(history, "more", node="n0", schedulerName="default-scheduler")
    assert not is_idle(history)


def test_an_entry_with_another_source_is_a_claim_of_the_pod() -> None:
    history = cluster()
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    put_pods(history, "x", claims=using_claims("gpu", template="other"))
    assert facts(history, "x").problem == (
        'waits for the ResourceClaim "gpu" to be created from ResourceClaimTemplate "other"'
    )


def test_a_named_claim_belongs_to_the_group_that_lists_it() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)))
    put_pods(history, "x", claims=using_claims("c"))
    assert (facts(history, "x").device_claims, facts(history, "x").group_claims) == (("c",), ())
    put_group(history, using_claims("c"))
    assert (facts(history, "x").device_claims, facts(history, "x").group_claims) == (("c",), ("c",))
    history.remove(NATIVE_POD_GROUPS, "uid-native-g")
    assert (facts(history, "x").device_claims, facts(history, "x").group_claims) == (("c",), ())


def test_a_claim_of_another_group_is_not_used() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("g-gpu-1", exactly(2), owner="uid-other"))
    put_group(history, FROM_TEMPLATE, created="g-gpu-1")
    put_pods(history, "x")
    reason = 'ResourceClaim "g-gpu-1" was not created for PodGroup "g"; delete or rename one of them'
    assert facts(history, "x").problem == reason
