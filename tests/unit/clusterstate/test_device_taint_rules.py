"""DeviceTaintRules taint devices as if the taint stood in the ResourceSlice."""

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
    taint_rule_object,
    using_claims,
)
from muster.clusterstate.recomputation import SLICE
from muster.devices.decoding import decode_taint_rule
from muster.devices.facts import DeviceTaint, TaintRule
from muster.gangs.counted_resources import devices
from muster.gangs.facts import Batch, DeviceObjectKind, TaintEffect
from muster.kube.api_resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)

GPUS = devices("gpu")


def cluster(*requests: Object) -> History:
    """Nodes n0 and n1 with four devices each, and a pod with a claim."""
    history = History()
    history.put(NODES, node_object("n0"), node_object("n1"))
    history.put(DEVICE_CLASSES, device_class_object())
    history.put(RESOURCE_SLICES, slice_object("n0", 4), slice_object("n1", 4))
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", *requests))
    history.pods(pod_object("x", resourceClaims=using_claims("c")))
    return history


def rest(history: History) -> Batch:
    """Compute what changes have left; returns the last batch."""
    batch = Batch()
    while history.state.has_work:
        batch = history.state.advance()
    return batch


def offered(history: History) -> list[int]:
    """Devices of the class on n0 and n1."""
    rest(history)
    facts = history.state.nodes.facts
    return [dict(facts[name].allocatable).get(GPUS, 0) for name in ("n0", "n1")]


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({}, [0, 0]),
        ({"driver": DRIVER}, [0, 0]),
        ({"driver": "other"}, [4, 4]),
        ({"pool": "n0"}, [0, 4]),
        ({"driver": DRIVER, "pool": "n1", "device": "gpu-2"}, [4, 3]),
        ({"device": "gpu-0"}, [3, 3]),
        ({"pool": "n0", "device": "none"}, [4, 4]),
        (None, [4, 4]),
    ],
    ids=str,
)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_selected_devices_are_not_offered_while_the_rule_exists(
    selector: Object | None, left: list[int], effect: str
) -> None:
    history = cluster()
    history.put(DEVICE_TAINT_RULES, taint_rule_object("broken", selector, effect=effect))
    assert offered(history) == left
    history.remove(DEVICE_TAINT_RULES, "uid-rule-broken")
    assert offered(history) == [4, 4]
    assert history.state.sizes()["device_taint_rules"] == 0


def test_a_rule_is_changed() -> None:
    history = cluster()
    history.put(DEVICE_TAINT_RULES, taint_rule_object("a", {"pool": "n0"}))
    assert offered(history) == [0, 4]
    history.put(DEVICE_TAINT_RULES, taint_rule_object("a", {"pool": "n1", "device": "gpu-1"}))
    assert offered(history) == [4, 3]
    history.put(DEVICE_TAINT_RULES, taint_rule_object("a", {}, effect="None"))
    assert offered(history) == [4, 4]


def test_several_rules_and_taints_of_the_slice_add_up() -> None:
    history = cluster()
    tainted = [device_object("gpu-0", taint="driver"), device_object("gpu-1"), device_object("gpu-2")]
    history.put(RESOURCE_SLICES, slice_object("n0", tainted))
    for number in (0, 1):
        history.put(DEVICE_TAINT_RULES, taint_rule_object(f"r{number}", {"device": f"gpu-{number}"}, key="k"))
    assert offered(history) == [1, 2]
    history.remove(DEVICE_TAINT_RULES, "uid-rule-r0")
    assert offered(history) == [1, 3]


def test_requests_that_tolerate_the_taint_have_the_devices() -> None:
    history = cluster(exactly(1, tolerations=[{"key": "broken", "operator": "Exists"}]))
    history.put(DEVICE_TAINT_RULES, taint_rule_object("broken", {"pool": "n0"}))
    rest(history)
    [tolerant] = [each for each in dict(history.state.nodes.facts["n0"].allocatable) if each.endswith("-gpu")]
    assert dict(history.state.nodes.facts["n0"].allocatable)[tolerant] == 4
    history.put(DEVICE_TAINT_RULES, taint_rule_object("worse", {"pool": "n0"}))
    rest(history)
    assert tolerant not in dict(history.state.nodes.facts["n0"].allocatable)


def test_slices_that_come_after_the_rule_are_tainted() -> None:
    history = cluster()
    history.put(DEVICE_TAINT_RULES, taint_rule_object("broken", {"pool": "n0", "device": "gpu-0"}))
    history.remove(RESOURCE_SLICES, "uid-slice-n0")
    history.put(RESOURCE_SLICES, slice_object("n0", 2, generation=2))
    assert offered(history) == [1, 4]


def test_subscribers_receive_tainted_slices() -> None:
    history = cluster()
    batch = history.put(DEVICE_TAINT_RULES, taint_rule_object("broken", {"pool": "n0"}))
    [changed] = batch.device_objects
    assert (changed.kind, changed.name) == (DeviceObjectKind.SLICE, "n0")
    assert b"broken" in changed.content
    assert [node.name for node in rest(history).nodes] == ["n0"]
    [streamed] = [each for each in history.state.snapshot().device_objects if each.name == "n0"]
    assert streamed == changed
    batch = history.remove(DEVICE_TAINT_RULES, "uid-rule-broken")
    assert b"broken" not in batch.device_objects[0].content


def test_a_rule_for_all_devices_is_applied_in_slices() -> None:
    history = cluster()
    names = [f"m{number}" for number in range(SLICE)]
    history.put(NODES, *map(node_object, names))
    history.put(RESOURCE_SLICES, *(slice_object(name, 1) for name in names))
    rest(history)
    first = history.put(DEVICE_TAINT_RULES, taint_rule_object("all", {}))
    assert history.state.has_work
    assert first.through.get(DEVICE_TAINT_RULES.kind, 0) < history.revision
    assert rest(history).through[DEVICE_TAINT_RULES.kind] == history.revision
    offers = [dict(facts.allocatable).get(GPUS, 0) for facts in history.state.nodes.facts.values()]
    assert not any(offers)


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({"deviceClassName": "gpu"}, [0, 4]),
        ({"deviceClassName": "none"}, [2, 4]),
        ({"selectors": [{"cel": {"expression": f"device.capacity['{DRIVER}'].memory == quantity('80Gi')"}}]}, [1, 4]),
        ({"selectors": [{"cel": {"expression": "device.nothing("}}]}, [2, 4]),
        ({"selectors": [{"future": {}}]}, [2, 4]),
    ],
    ids=["class", "no class", "expression", "wrong expression", "unknown selector"],
)
def test_classes_and_expressions_of_old_versions_select_devices(selector: Object, left: list[int]) -> None:
    history = cluster()
    history.put(RESOURCE_SLICES, slice_object("n0", [device_object("a", memory=80), device_object("b")]))
    history.put(DEVICE_TAINT_RULES, taint_rule_object("broken", {"pool": "n0", **selector}))
    assert offered(history) == left


def test_a_rule_follows_its_class() -> None:
    history = cluster()
    history.put(DEVICE_TAINT_RULES, taint_rule_object("broken", {"pool": "n0", "deviceClassName": "late"}))
    assert offered(history) == [4, 4]
    history.put(DEVICE_CLASSES, device_class_object("late"))
    assert offered(history) == [0, 4]
    history.remove(DEVICE_CLASSES, "uid-class-late")
    assert offered(history) == [4, 4]


@pytest.mark.parametrize("spec", [{}, {"taint": "all"}, {"taint": {"key": "k"}, "deviceSelector": {"pool": 1}}])
def test_a_rule_that_cannot_be_read_taints_nothing(spec: Any) -> None:
    history = cluster()
    history.put(DEVICE_TAINT_RULES, taint_rule_object("a", {"pool": "n0"}))
    history.put(DEVICE_TAINT_RULES, {**taint_rule_object("a", {}), "spec": spec})
    assert offered(history) == [4, 4]


def test_a_rule_is_decoded() -> None:
    rule = taint_rule_object("a", {"driver": "d", "pool": "p", "device": "x"}, effect="NoExecute")
    rule["spec"]["taint"]["value"] = "v"
    taint = DeviceTaint("a", "v", TaintEffect.NO_EXECUTE)
    assert decode_taint_rule(rule) == TaintRule("a", taint, driver="d", pool="p", device="x")
