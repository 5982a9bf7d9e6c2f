"""Facts that cannot be encoded are left out or sent in part, counted and reported; the stream goes on."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from builders.clusterstate.history import History, node_object, pod_object
from builders.wait import WAIT_SECONDS
from muster.clusterstate.broadcaster import Broadcaster
from muster.clusterstate.encodable import NotEncoded, encodable
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import (
    Batch,
    DeviceObject,
    DeviceObjectKind,
    DisruptionBudget,
    GangFacts,
    NodeFacts,
    NodeRequirement,
    NodeSelectorTerm,
    ObjectReference,
    PodClass,
    PodFacts,
    PodTerm,
    PreferredPodTerm,
    StaticClaim,
    StaticVolume,
    Toleration,
    TolerationOperator,
    TopologyTree,
    TreeDomain,
    TreeLevel,
)
from muster.gangs.node_filters import filter_reason
from muster.gangs.quantity import INT64_MAX
from muster.gangs.selectors import NOTHING_SELECTED, LabelSelector, LabelSet, NamespaceFacts, PodSelector
from muster.kube.api_resources import PODS
from muster.rpc.watch_codec import decode_batch, encode_batch

HUGE = 2**70
ODD = "\ud800"
SOUND: dict[str, Any] = {
    "pod_classes": PodClass("sound"),
    "selectors": PodSelector("sound", ("ml",), NOTHING_SELECTED, LabelSelector(())),
    "label_sets": LabelSet("sound", "ml", ("a",), ("b",)),
    "namespaces": NamespaceFacts("sound", {"a": "b"}),
    "nodes": NodeFacts("sound"),
    "trees": TopologyTree("sound"),
    "gangs": GangFacts("koordinator/ml/sound", "koordinator", "ml", "sound"),
    "budgets": DisruptionBudget("ml/sound", 1),
    "pods": PodFacts("sound", "ml", "sound", "c"),
    "static_volumes": StaticVolume("sound", "local"),
    "static_claims": StaticClaim("ml/sound", "local"),
    "device_objects": DeviceObject(DeviceObjectKind.SLICE, "sound", b"x"),
}
BROKEN: dict[str, tuple[str, Any]] = {
    "amount of a class": ("pod_classes", PodClass("odd", (("cpu", HUGE),))),
    "weight of a class": (
        "pod_classes",
        PodClass("odd", preferred_pod_affinity=(PreferredPodTerm(HUGE, PodTerm("s", "z")),)),
    ),
    "selector": ("selectors", PodSelector("odd", (ODD,), NOTHING_SELECTED, NOTHING_SELECTED)),
    "label set": ("label_sets", LabelSet("odd", "ml", (ODD,), ("b",))),
    "namespace": ("namespaces", NamespaceFacts("odd", {"a": ODD})),
    "node": ("nodes", NodeFacts("odd", allocatable=(("cpu", HUGE),))),
    "tree": ("trees", TopologyTree("odd", (TreeLevel("rack"),), (TreeDomain("r", HUGE),))),
    "gang": ("gangs", GangFacts("koordinator/ml/odd", "koordinator", "ml", "odd", created_seconds=HUGE)),
    "reference of a gang": (
        "gangs",
        GangFacts("koordinator/ml/odd", "koordinator", "ml", "odd", definition=ObjectReference("v1", ODD, "ml", "odd")),
    ),
    "budget": ("budgets", DisruptionBudget("ml/odd", HUGE)),
    "pod": ("pods", PodFacts("odd", "ml", "odd", "c", priority=HUGE)),
    "type of a field": ("pods", PodFacts("odd", "ml", "odd", "c", created_seconds="soon")),  # type: ignore[arg-type]
    "static volume": ("static_volumes", StaticVolume("odd", "local", HUGE)),
    "static claim": ("static_claims", StaticClaim("ml/odd", "local", HUGE)),
    "device object": ("device_objects", DeviceObject(DeviceObjectKind.SLICE, ODD)),
}


def test_every_kind_of_objects_in_a_batch_is_covered() -> None:
    objects = {name for name in Batch.__struct_fields__ if not name.startswith("removed_")} - {"changed", "through"}
    assert objects == SOUND.keys() == {kind for kind, _ in BROKEN.values()}


@pytest.mark.parametrize(("kind", "odd"), BROKEN.values(), ids=BROKEN)
def test_one_object_that_cannot_be_encoded_does_not_hide_the_others(kind: str, odd: Any) -> None:
    sound = Batch(
        **{each: (one,) for each, one in SOUND.items()},
        removed_pods=("gone",),
        changed={"pods": 3},
        through={"pods": 3, "nodes": 2},
    )
    parts = {name: getattr(sound, name) for name in Batch.__struct_fields__}
    batch = Batch(**{**parts, kind: (odd, *parts[kind])})
    with pytest.raises((ValueError, TypeError, OverflowError)):
        encode_batch(batch).SerializeToString()
    rest, found = encodable(batch)
    received = decode_batch(pb.Batch.FromString(encode_batch(rest).SerializeToString()))
    for name in Batch.__struct_fields__:
        objects = getattr(received, name)
        expected = decode_batch(encode_batch(Batch(**{name: parts[name]})))
        assert (objects[-1:] if name == kind else objects) == getattr(expected, name)
    assert len(getattr(received, kind)) <= 2
    assert len(found) == 1
    assert found[0].message
    assert found[0].effect


def test_a_class_in_part_fits_no_node_but_counts_where_its_pods_are() -> None:
    term = NodeSelectorTerm((NodeRequirement("a", "In", ("b",)),))  # type: ignore[arg-type]
    toleration = Toleration("k", TolerationOperator.EXISTS)
    odd = PodClass("c", (("cpu", 2000), ("memory", HUGE), (ODD, 1)), (("a", "b"),), (term,), (), (toleration,))
    batch, (found,) = encodable(Batch(pod_classes=(odd,)))
    (rest,) = batch.pod_classes
    assert rest == PodClass("c", (("cpu", 2000), ("memory", INT64_MAX)), (("a", "b"),), (), (), (toleration,))
    assert filter_reason(rest, NodeFacts("n", labels={"a": "b"}, allocatable=(("cpu", 10**6),)))
    assert (found.kind, found.id) == ("pod_classes", "c")
    assert "requests: ValueError" in found.message
    assert "required_node_affinity: " in found.message


def test_what_waits_says_why() -> None:
    batch = Batch(
        pods=(PodFacts("p", "ml", "p", "c", node="n", priority=HUGE, problem="it has no luck"),),
        gangs=(GangFacts("koordinator/ml/g", "koordinator", "ml", "g", minimum=4, created_seconds=HUGE),),
        nodes=(NodeFacts("n", labels={"a": "b"}, allocatable=(("cpu", 5), ("memory", HUGE))),),
        trees=(TopologyTree(name="t", leaves=((ODD, -1),)),),
        budgets=(DisruptionBudget("b", HUGE),),
    )
    rest, found = encodable(batch)
    (pod,), (gang,), (node,), (tree,) = rest.pods, rest.gangs, rest.nodes, rest.trees
    assert (pod.node, pod.class_id, pod.priority) == ("n", "c", 2**31 - 1)
    assert pod.problem.startswith("it has no luck; the pod cannot be sent to the scheduler (priority: ValueError: ")
    assert pod.problem.endswith("): change that, and report this defect of Muster")
    assert gang.blocked
    assert gang.minimum == 4
    assert gang.problems[0].message.startswith("its declaration cannot be sent to the scheduler (created_seconds: ")
    assert node == NodeFacts(
        "n", labels={"a": "b"}, allocatable=(("cpu", 5), ("memory", INT64_MAX)), unschedulable=True
    )
    assert tree.problems[0].message.startswith("the tree cannot be sent to the scheduler (")
    assert rest.budgets == (DisruptionBudget("b", 0),)
    assert [(each.kind, each.namespace, each.name) for each in found if each.kind == "pods"] == [("pods", "ml", "p")]


def test_names_and_revisions_that_cannot_be_encoded_are_left_out() -> None:
    batch = Batch(
        removed_pods=("a", ODD), removed_nodes=(ODD,), changed={"pods": -1}, through={"pods": HUGE, "nodes": 5}
    )
    rest, found = encodable(batch)
    assert (rest, found) == (Batch(removed_pods=("a",), through={"nodes": 5}), [])


def test_an_object_whose_name_cannot_be_encoded_is_left_out() -> None:
    rest, found = encodable(Batch(nodes=(NodeFacts(ODD), NodeFacts("n"))))
    assert [node.name for node in rest.nodes] == ["n"]
    assert [each.effect for each in found] == ["it is left out"]


class Stream:
    """A state, whose facts a defect may change, and the pods of one subscriber."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.reported: list[NotEncoded] = []
        self.broadcaster = Broadcaster(history.state.snapshot, report=self._report)
        self.pods: dict[str, PodFacts] = {}
        self.classes: dict[str, PodClass] = {}
        self.synced = False

    def _report(self, found: Sequence[NotEncoded]) -> None:
        self.reported.extend(found)
        self.history.state.not_encoded(found)

    def publish(self, batch: Batch) -> None:
        self.broadcaster.publish(batch)

    async def read(self, messages: Any, until: Callable[[], bool]) -> None:
        """Read until the pods are such."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.synced or not until():
                step = pb.WatchResponse.FromString(await anext(messages))
                self.synced |= step.WhichOneof("step") == "synced"
                batch = decode_batch(step.batch)
                self.classes.update((each.id, each) for each in batch.pod_classes)
                self.pods.update((pod.uid, pod) for pod in batch.pods)
                while self.history.state.has_work:
                    self.publish(self.history.state.advance())


@pytest.fixture
def amounts_beyond_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect: amounts are not cut to the range of their field."""
    monkeypatch.setattr("muster.kube.pod_requests.amount_of", lambda name, nanos, *, round_up: nanos * 10**6)


@pytest.mark.usefixtures("amounts_beyond_int64")
async def test_pods_whose_class_cannot_be_encoded_wait_in_snapshots_and_deltas() -> None:
    history = History()
    history.nodes(node_object("n"))
    history.pods(pod_object("early", cpu="7777777"))
    stream = Stream(history)

    def waiting(name: str) -> bool:
        pod = stream.pods.get(f"uid-{name}")
        why = "what it requests of nodes cannot be sent to the scheduler (requests: ValueError: "
        return pod is not None and pod.problem.startswith(why)

    async with aclosing(stream.broadcaster.subscribe("test")) as messages:
        await stream.read(messages, lambda: waiting("early"))
        stream.publish(history.pods(pod_object("late", cpu="7777777"), pod_object("other", cpu="7777778")))
        stream.publish(history.pods(pod_object("sound", cpu="0.0000001")))
        await stream.read(messages, lambda: waiting("late") and waiting("other") and "uid-sound" in stream.pods)
        for name in ("early", "late", "other"):
            assert stream.classes[stream.pods[f"uid-{name}"].class_id].required_node_affinity == ()
        assert stream.pods["uid-sound"].problem == ""
    assert {each.kind for each in stream.reported} == {"pod_classes"}
    stream.publish(history.pods(pod_object("early", cpu="0.0000001")))
    assert history.state.pods.facts["uid-early"].problem == "", "another class can be sent"


@pytest.mark.usefixtures("amounts_beyond_int64")
def test_i11_nothing_remains_of_a_class_that_could_not_be_encoded() -> None:
    history = History()
    history.pods(pod_object("a", cpu="7777777"))
    _, found = encodable(history.state.snapshot())
    history.state.not_encoded(found)
    assert [pod.name for pod in history.state.advance().pods] == ["a"]
    history.state.not_encoded(found)
    assert not history.state.has_work, "pods are computed once"
    history.remove(PODS, "uid-a")
    history.state.sweep()
    history.state.sweep()
    assert history.state.pods.classes.blocked == {}


def test_pods_that_name_a_selector_that_cannot_be_encoded_wait() -> None:
    history = History()
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    history.pods(pod_object("a", affinity={"podAffinity": required}), pod_object("b"))
    (selector,) = history.state.snapshot().selectors
    error = ValueError("odd")
    history.state.not_encoded([NotEncoded("pod_selectors", selector.id, "ValueError: odd", "", error)])
    (pod,) = history.state.advance().pods
    assert (pod.name, pod.problem) == (
        "a",
        "a selector of its affinity or spread cannot be sent to the scheduler (ValueError: odd): "
        "change that, and report this defect of Muster",
    )
