"""Pods that Kueue manages, from their creation behind scheduling gates to their release."""

import pytest

from builders.clusterstate.history import History, Object, pod_object
from muster.gangs.facts import LevelConstraint, LevelPolicy, PodFacts

PREFIX = "kueue.x-k8s.io/"
SLICES, RACK = PREFIX + "podset-slice-required-topology", "example.com/rack"
ADMISSION, TOPOLOGY = {"name": PREFIX + "admission"}, {"name": PREFIX + "topology"}


def member(name: str, *gates: dict[str, str], scheduler: str = "muster", **selector: str) -> Object:
    labels = {PREFIX + "pod-group-name": "g", PREFIX + "managed": "true", PREFIX + "pod-group-pod-index": name[-1]}
    annotations = {PREFIX + "pod-group-total-count": "2"}
    return pod_object(
        name,
        labels=labels,
        annotations=annotations,
        scheduler=scheduler,
        schedulingGates=list(gates),
        nodeSelector=selector,
    )


def sliced(number: int, *gates: dict[str, str], **selector: str) -> Object:
    """A pod of a group of two that asks for slices of two pods in a rack."""
    pod = member(f"w-{number}", *gates, **selector)
    pod["metadata"]["annotations"] |= {SLICES: RACK, PREFIX + "podset-slice-size": "2"}
    return pod


def only(pods: tuple[PodFacts, ...]) -> PodFacts:
    (pod,) = pods
    return pod


def test_a_pod_is_gated_until_the_last_gate_is_removed() -> None:
    history = History()
    batch = history.pods(member("w-0", ADMISSION, TOPOLOGY))
    (gang,) = batch.gangs
    assert (gang.id, gang.minimum) == ("kueue/ml/g", 2)
    assert (only(batch.pods).gated, only(batch.pods).gang, only(batch.pods).wanted_rank) == (True, gang.id, 0)
    assert history.pods(member("w-0", TOPOLOGY)).pods == ()  # nothing that matters has changed
    assert not only(history.pods(member("w-0")).pods).gated


def test_the_node_selector_that_kueue_adds_at_the_release_is_that_of_the_pods_class() -> None:
    history = History()
    gated = only(history.pods(member("w-0", TOPOLOGY)).pods)
    batch = history.pods(member("w-0", **{"example.com/rack": "r3", "kubernetes.io/hostname": "n7"}))
    released = only(batch.pods)
    assert released.class_id != gated.class_id
    [pod_class] = [each for each in batch.pod_classes if each.id == released.class_id]
    assert pod_class.node_selector == (("example.com/rack", "r3"), ("kubernetes.io/hostname", "n7"))


def test_slices_of_released_pods_are_constraints_and_their_label_gets_a_tree() -> None:
    history = History()
    history.pods(sliced(0, ADMISSION), sliced(1, ADMISSION))
    assert not history.state.gangs.facts["kueue/ml/g"].constraints
    history.pods(sliced(0), sliced(1))
    gang = history.state.gangs.facts["kueue/ml/g"]
    assert gang.constraints == (LevelConstraint(RACK, LevelPolicy.FACTOR, hard=True, count=2),)
    assert gang.tree in history.state.trees.facts
    assert not gang.problems


@pytest.mark.parametrize("selector", [{RACK: "r3"}, {"kubernetes.io/hostname": "n7"}])
def test_slices_for_which_kueue_chose_the_domain_are_none_of_musters(selector: dict[str, str]) -> None:
    history = History()
    history.pods(sliced(0, TOPOLOGY), sliced(1, TOPOLOGY))
    history.pods(sliced(0, **selector), sliced(1, TOPOLOGY))
    gang = history.state.gangs.facts["kueue/ml/g"]
    assert (gang.constraints, gang.subgroups, gang.problems) == ((), (), ())


@pytest.mark.parametrize(
    ("selector", "warned"), [({}, True), ({"example.com/other": "o1"}, True), ({RACK: "r3"}, False)]
)
@pytest.mark.parametrize("beside", ["", "}", "[5, {}]"])
def test_slices_of_slices_are_named_unless_kueue_chose_their_domain(
    selector: dict[str, str], warned: bool, beside: str
) -> None:
    pod = member("w-0", **selector)
    pod["metadata"]["annotations"][SLICES + "-constraints"] = beside or f'[{{"topology": "{RACK}", "size": "2"}}]'
    history = History()
    history.pods(pod)
    warnings = [each.message for each in history.state.gangs.facts["kueue/ml/g"].problems]
    assert bool(warnings) is (warned or bool(beside))


def test_a_pod_that_kueue_puts_into_a_group_for_its_controller_stays_a_plain_pod() -> None:
    """Kueue labels pods of a LeaderWorkerSet while they are gated."""
    history = History()
    parent = {PREFIX + "pod-suspending-parent": "leaderworkerset.x-k8s.io/leaderworkerset"}
    created = history.pods(pod_object("w-0", annotations=parent, schedulingGates=[ADMISSION]))
    late = pod_object(
        "w-0",
        labels={PREFIX + "pod-group-name": "lws-0"},
        annotations={**parent, PREFIX + "pod-group-total-count": "4"},
    )
    released = history.pods(late)
    assert [(pod.gang, pod.problem) for batch in (created, released) for pod in batch.pods] == [("", "")] * 2
    assert (created.gangs, released.gangs) == ((), ())


def test_a_group_of_pods_with_another_schedulers_name_is_no_gang() -> None:
    batch = History().pods(member("w-0", scheduler="default-scheduler"))
    assert batch.gangs == ()
