"""For any sequence of events, the batches add up to the state, and a replica that starts later agrees."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.clusterstate.history import (
    NATIVE_POD_GROUPS,
    SAKKARA_MAPS,
    SCHEDULING_SPECS,
    TOPOLOGY_MAPS,
    X_POD_GROUPS,
    History,
    Object,
    budget_object,
    native_pod_group_object,
    node_object,
    pod_group_object,
    pod_object,
    priority_class_object,
    sakkara_map_object,
    scheduling_spec_object,
    settle,
    topology_map_object,
)
from muster.gangs.facts import Batch
from muster.gangs.facts_store import FactsStore
from muster.kube.api_resources import BUDGETS, NODES, PODS, PRIORITY_CLASSES, ApiResource

PREFIX = "gang.scheduling.koordinator.sh/"
Event = Object | str
"""An object that comes or changes, or the uid of one that goes."""
Step = tuple[ApiResource[Any], list[Event]]
"""Events of one kind, in one batch."""

names = st.sampled_from(["a", "b", "c", "d"])
marks = st.sampled_from(["2", "3", "five"]).map(lambda text: {PREFIX + "name": "g", PREFIX + "min-available": text})
LABEL = "scheduling.x-k8s.io/pod-group"
GROUP = "sakkara.group.name"
labels = st.sampled_from([{}, {LABEL: "g"}, {LABEL: "h"}, {GROUP: "k"}, {GROUP: "k", "sakkara.group.size": "3"}])
pods = st.builds(
    pod_object,
    names,
    uid=st.sampled_from(["", "u1", "u2", "u3"]),
    namespace=st.sampled_from(["ml", "ml", "dev"]),
    node=st.sampled_from(["", "n", "m"]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    scheduler=st.sampled_from(["muster", "muster", "other"]),
    cpu=st.sampled_from(["1", "2", "junk"]),
    labels=labels,
    annotations=st.one_of(st.just({}), marks),
    deleting=st.booleans(),
    owner=st.sampled_from(["", "job-1", "job-2"]),
    second=st.integers(0, 3),
    priorityClassName=st.sampled_from(["", "high"]),
    nodeSelector=st.sampled_from([{}, {"disk": "ssd"}]),
    schedulingGroup=st.sampled_from([{}, {"podGroupName": "n"}, {"podGroupName": "o"}]),
)
nodes = st.builds(
    node_object,
    st.sampled_from(["n", "m"]),
    uid=st.sampled_from(["", "u4"]),
    cpu=st.sampled_from(["4", "8"]),
    labels=st.sampled_from([{}, {"sakkara.topology.rack": "r"}]),
)
groups = st.builds(
    pod_group_object,
    st.sampled_from(["g", "h"]),
    uid=st.sampled_from(["", "u5"]),
    minimum=st.sampled_from([0, 2, 3, "x"]),
)
native_groups = st.builds(
    native_pod_group_object,
    st.sampled_from(["n", "o"]),
    st.sampled_from([{"basic": {}}, {"gang": {"minCount": 2}}]),
    owner=st.sampled_from(["", "job-1", "job-1"]),
    uid=st.sampled_from(["", "u9"]),
)
classes = st.builds(priority_class_object, st.just("high"), st.integers(0, 3), is_default=st.booleans())
OWNERS = {"s": "job-1", "t": "job-1", "u": "job-2", "v": ""}
specs = st.builds(
    lambda name, **fields: scheduling_spec_object(name, OWNERS[name], **fields),
    st.sampled_from(sorted(OWNERS)),
    second=st.integers(0, 2),
    minAvailable=st.sampled_from([1, 2, "x"]),
    nodeSelector=st.sampled_from([None, {"disk": "ssd"}, {"disk": "hdd", "zone": "a"}, "junk"]),
)
budgets = st.builds(
    budget_object,
    st.sampled_from(["x", "y"]),
    st.sampled_from([None, {}, {"matchLabels": {LABEL: "g"}}, {"matchLabels": {LABEL: "h"}}, "junk"]),
    allowed=st.sampled_from([0, 1, "many"]),
    uid=st.sampled_from(["", "u6"]),
    namespace=st.sampled_from(["ml", "dev"]),
)
sakkara_maps = st.builds(
    sakkara_map_object,
    st.sampled_from(["k", "l"]),
    uid=st.sampled_from(["", "u8"]),
    second=st.integers(0, 2),
    name=st.sampled_from(["", "k", "l", "no/name"]),
    size=st.sampled_from(["2", "three"]),
    status=st.sampled_from(["Waiting", "Bound"]),
)
topology_maps = st.builds(
    topology_map_object,
    st.sampled_from(["s", "t"]),
    st.sampled_from([{}, {"r": {"n": {}}}, {"r": {"n": {}}, "q": {"m": {}}}]),
    uid=st.sampled_from(["", "u7"]),
    second=st.integers(0, 2),
    name=st.sampled_from(["east", "west", "default-tree"]),
)


def steps_of(resource: ApiResource[Any], objects: st.SearchStrategy[Object]) -> st.SearchStrategy[Step]:
    events = st.tuples(objects, st.sampled_from(["put", "put", "remove"]))
    return st.lists(events, min_size=1, max_size=4).map(lambda items: (resource, list(items)))  # type: ignore[arg-type]


def legal(steps: list[Any]) -> list[Step]:
    """A name belongs to one object at a time, and a uid to one name, ever."""
    owners: dict[tuple[str, str], str] = {}
    made: list[Step] = []
    for resource, items in steps:
        events: list[Event] = []
        for each, what in items:
            metadata = each["metadata"]
            place = (resource.kind, f"{metadata.get('namespace', '')}/{metadata['name']}")
            uid = f"{metadata.get('namespace', '')}.{metadata['name']}.{metadata['uid']}"
            if (before := owners.get(place)) is not None and (before != uid or what == "remove"):
                events.append(before)
                del owners[place]
            if what == "put":
                owners[place] = uid
                events.append({**each, "metadata": {**metadata, "uid": uid}})
        made.append((resource, events))
    return made


histories = st.lists(
    st.one_of(
        steps_of(PODS, pods),
        steps_of(PODS, pods),
        steps_of(NODES, nodes),
        steps_of(X_POD_GROUPS, groups),
        steps_of(NATIVE_POD_GROUPS, native_groups),
        steps_of(PRIORITY_CLASSES, classes),
        steps_of(SCHEDULING_SPECS, specs),
        steps_of(SAKKARA_MAPS, sakkara_maps),
        steps_of(BUDGETS, budgets),
        steps_of(TOPOLOGY_MAPS, topology_maps),
    ),
    max_size=20,
).map(legal)


class Listener:
    """The state of a subscriber that applies only deltas."""

    def __init__(self, snapshot: Batch) -> None:
        self.store = FactsStore()
        self.store.put(snapshot)
        self.through: dict[str, int] = {}

    def hear(self, batch: Batch) -> None:
        classes = self.store.pod_classes.keys() | {each.id for each in batch.pod_classes}
        assert all(pod.class_id in classes for pod in batch.pods)
        assert all(batch.through[kind] >= revision for kind, revision in batch.changed.items())
        assert all(batch.through[kind] >= revision for kind, revision in self.through.items())
        reported: tuple[tuple[Any, ...], ...] = (batch.pods, batch.removed_pods, batch.nodes, batch.removed_nodes)
        reported += (batch.gangs, batch.removed_gangs, batch.budgets, batch.removed_budgets)
        reported += (batch.trees, batch.removed_trees)
        assert bool(batch.changed) <= any(reported)
        self.through = batch.through
        store = self.store
        assert store.nodes.keys() >= set(batch.removed_nodes)
        assert store.gangs.keys() >= set(batch.removed_gangs)
        assert store.budgets.keys() >= set(batch.removed_budgets)
        assert store.trees.keys() >= set(batch.removed_trees)
        store.put(batch)


def contents(store: FactsStore) -> Any:
    """Facts by value without revisions, because those of changes without effect are not sent."""
    return (
        {uid: replace(pod, revision=0) for uid, pod in store.pods.items()},
        {name: replace(node, revision=0) for name, node in store.nodes.items()},
        store.gangs,
        store.budgets,
        store.trees,
        store.selectors,
        store.namespaces,
    )


def take(history: History, step: Step) -> list[Batch]:
    """Apply the events of a step, each in a batch of its own."""
    resource, items = step
    return [
        history.remove(resource, item) if isinstance(item, str) else history.put(resource, copy.deepcopy(item))
        for item in items
    ]


@settings(max_examples=150, deadline=None)
@given(histories)
def test_batches_add_up_to_the_state(steps: list[Step]) -> None:
    history = History()
    listener = Listener(history.state.snapshot())
    for step in steps:
        for batch in take(history, step):
            listener.hear(batch)
    listener.hear(history.review())
    snapshot, store = history.state.snapshot(), FactsStore()
    store.put(snapshot)
    assert contents(listener.store) == contents(store)
    assert {pod.class_id for pod in snapshot.pods} <= {each.id for each in snapshot.pod_classes}


@settings(max_examples=150, deadline=None)
@given(histories)
def test_the_batching_of_events_does_not_matter(steps: list[Step]) -> None:
    singly, together = History(), History()
    for step in steps:
        take(singly, step)
        resource, items = step
        together.mixed(resource, [copy.deepcopy(item) for item in items])
    singly.review()
    together.review()
    assert everything(singly) == everything(together)


@settings(max_examples=150, deadline=None)
@given(histories)
def test_a_replica_that_starts_later_agrees(steps: list[Step]) -> None:
    # Pods whose definition is gone stay a job where they were one: see the owners.
    steps = [
        (resource, [each for each in items if not isinstance(each, str) or resource is not SCHEDULING_SPECS])
        for resource, items in steps
    ]
    early = History()
    alive: dict[tuple[str, str], tuple[ApiResource[Any], Object]] = {}
    for step in steps:
        take(early, step)
        resource, items = step
        for item in items:
            if isinstance(item, str):
                alive.pop((resource.kind, item), None)
            else:
                alive[resource.kind, item["metadata"]["uid"]] = (resource, item)
    late = History(settled=False)
    for resource, item in alive.values():
        late.page(resource, copy.deepcopy(item))
    settle(late.state)
    early.review()
    late.review()
    (_, pods, gangs, *others), (_, late_pods, late_gangs, *late_others) = everything(early), everything(late)
    assert (pods, others) == (late_pods, late_others)
    # The incarnation of pods without a controller depends on what was there before.
    assert {id_: replace(gang, incarnation="") for id_, gang in gangs.items()} == {
        id_: replace(gang, incarnation="") for id_, gang in late_gangs.items()
    }


def everything(history: History) -> Any:
    state = history.state
    pods = {uid: replace(pod, revision=0) for uid, pod in state.pods.facts.items()}
    nodes = {name: replace(node, revision=0) for name, node in state.nodes.facts.items()}
    return nodes, pods, dict(state.gangs.facts), dict(state.budgets.facts), dict(state.trees.facts)
