"""For any sequence of events, pod classes equal those of a naive computation, and replicas agree."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.clusterstate.history import History, Object, node_object, pod_object, settle
from builders.kube.inter_pod_rules import affinity, spread, term, wish
from builders.kube.storage import (
    ZONE,
    claim_object,
    class_object,
    csi_node_object,
    driver_object,
    in_zones,
    local_class,
    segment_object,
    using,
    volume_object,
    zone_term,
)
from muster.gangs.facts import Amounts, Batch, PodFacts, StaticClaim, StaticVolume
from muster.gangs.selection import PodSelection
from muster.gangs.selectors import LabelSelector
from muster.kube.api_resources import (
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    NAMESPACES,
    NODES,
    PODS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    ApiResource,
)
from muster.kube.pod_class import read_class

Event = tuple[ApiResource[Any], Object, bool]
"""An object that comes or changes (True), or goes."""

NAMES = ("a", "b", "c", "d")
labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2)
expressions = st.builds(
    lambda key, operator: {"key": key, "operator": operator, **({"values": ["x", "z"]} if "In" in operator else {})},
    st.sampled_from(["app", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
)
selectors = st.one_of(
    st.just(None),
    st.just({}),
    st.builds(
        lambda equal, more: {"matchLabels": equal, "matchExpressions": more}, labels, st.lists(expressions, max_size=1)
    ),
)
terms = st.builds(
    term,
    selectors,
    namespaces=st.sampled_from([None, ["ml"], ["dev", "ml"]]),
    namespaceSelector=st.sampled_from([None, {}, {"matchLabels": {"app": "x"}}]),
    matchLabelKeys=st.sampled_from([None, ["tier"]]),
)
some = st.lists(terms, max_size=1)
affinities = st.builds(affinity, some, some, st.lists(st.builds(wish, st.just(5), terms), max_size=1))
pods = st.builds(
    pod_object,
    st.sampled_from(NAMES),
    namespace=st.sampled_from(["ml", "dev"]),
    node=st.sampled_from(["", "", "n"]),
    phase=st.sampled_from(["Pending", "Pending", "Succeeded"]),
    scheduler=st.sampled_from(["muster", "muster", "other"]),
    labels=labels,
    second=st.integers(0, 2),
    affinity=st.none() | affinities,
    topologySpreadConstraints=st.none() | st.lists(st.builds(spread, selectors), max_size=1),
    volumes=st.sampled_from([None, using("c"), using("c", "d"), using(ephemeral=("e",))]),
)
namespaces = st.builds(
    lambda name, shown: {"metadata": {"name": name, "labels": shown}}, st.sampled_from(["ml", "dev"]), labels
)
claims = st.builds(
    claim_object,
    st.sampled_from(["c", "d", "a-e"]),
    volume=st.sampled_from(["", "v", "w"]),
    bound=st.sampled_from([None, False]),
    storage_class=st.sampled_from(["fast", "slow", "local", None]),
    size=st.sampled_from(["1Gi", "3Gi"]),
    modes=st.sampled_from([("ReadWriteOnce",), ("ReadWriteOncePod",)]),
    annotations=st.sampled_from([{}, {"volume.kubernetes.io/selected-node": "n"}]),
    namespace=st.sampled_from(["ml", "dev"]),
    deleting=st.booleans(),
)
volumes = st.builds(
    volume_object,
    st.sampled_from(["v", "w"]),
    st.sampled_from(["a", "b"]).map(zone_term),
    driver=st.sampled_from(["", "disk.example.com"]),
    handle=st.sampled_from(["", "same"]),
    storage_class=st.sampled_from(["", "local"]),
    size=st.sampled_from(["1Gi", "2Gi", "4Gi"]),
    phase=st.sampled_from(["", "Available", "Released"]),
    claim=st.sampled_from(["", "", "ml/c", "ml/d/other"]),
)
segments = st.builds(
    segment_object,
    st.sampled_from(["s", "t"]),
    st.sampled_from([{}, {"matchLabels": {"kubernetes.io/hostname": "n"}}]),
    st.sampled_from(["1Gi", "8Gi"]),
    storage_class=st.sampled_from(["fast", "slow"]),
    largest=st.sampled_from([None, None, "2Gi"]),
)
drivers = st.builds(lambda publishes: driver_object(publishes=publishes), st.booleans())
nodes = st.builds(node_object, st.sampled_from(["n", "m"]), labels=st.sampled_from([{}, {ZONE: "a"}, {ZONE: "b"}]))
csi_nodes = st.builds(
    lambda name, limits: csi_node_object(name, **limits),
    st.sampled_from(["n", "m"]),
    st.dictionaries(st.sampled_from(["disk.example.com", "other"]), st.sampled_from([None, 0, 1, 2]), max_size=2),
)
classes = st.builds(
    class_object,
    st.sampled_from(["fast", "slow"]),
    mode=st.sampled_from(["WaitForFirstConsumer", "Immediate"]),
    topologies=st.sampled_from([None, in_zones("a")]),
) | st.builds(local_class)


def events_of(resource: ApiResource[Any], objects: st.SearchStrategy[Object]) -> st.SearchStrategy[Event]:
    return st.tuples(st.just(resource), objects, st.sampled_from([True, True, False]))


histories = st.lists(
    st.one_of(
        events_of(PODS, pods),
        events_of(PODS, pods),
        events_of(PODS, pods),
        events_of(NAMESPACES, namespaces),
        events_of(CLAIMS, claims),
        events_of(VOLUMES, volumes),
        events_of(STORAGE_CLASSES, classes),
        events_of(NODES, nodes),
        events_of(CSI_NODES, csi_nodes),
        events_of(CSI_DRIVERS, drivers),
        events_of(STORAGE_CAPACITIES, segments),
    ),
    max_size=24,
)


def identity(resource: ApiResource[Any], each: Object) -> str:
    metadata = each["metadata"]
    return f"{resource.kind}/{metadata.get('namespace', '')}/{metadata['name']}"


def played(
    events: list[Event], history: History, alive: dict[str, tuple[ApiResource[Any], Object]] | None = None
) -> dict[str, tuple[ApiResource[Any], Object]]:
    """Apply events to the objects; returns the resulting objects."""
    alive = {} if alive is None else alive
    for resource, given_, comes in events:
        uid = identity(resource, given_)
        if comes:
            each = copy.deepcopy(given_)
            each["metadata"]["uid"] = uid
            alive[uid] = (resource, each)
            history.put(resource, copy.deepcopy(each))
        elif alive.pop(uid, None) is not None:
            history.remove(resource, uid)
    return alive


def content(history: History) -> dict[str, PodFacts]:
    return {uid: replace(facts, revision=0) for uid, facts in history.state.pods.facts.items()}


def offers(history: History) -> dict[str, tuple[Amounts, dict[str, str]]]:
    return {name: (node.allocatable, node.labels) for name, node in history.state.nodes.facts.items()}


def static(history: History) -> tuple[dict[str, StaticVolume], dict[str, StaticClaim]]:
    binding = history.state.pods.volumes.static_binding
    return binding.volumes, binding.claims


@settings(max_examples=250, deadline=None)
@given(histories)
def test_selectors_select_the_pods_of_a_linear_search(events: list[Event]) -> None:
    history = History()
    alive = played(events, history)
    history.state.sweep()
    history.state.sweep()
    selection = PodSelection()
    selection.apply(history.state.snapshot())
    spaces = {
        each["metadata"]["name"]: each["metadata"]["labels"]
        for resource, each in alive.values()
        if resource is NAMESPACES
    }
    there = [PODS.decode(encoded(each)) for resource, each in alive.values() if resource is PODS]
    there = [each for each in there if each.metadata.uid in history.state.pods.facts]
    named = {
        selector for each in there for selector in read_class(each, ours=each.spec.scheduler_name == "muster").selectors
    }
    assert set(selection.selectors) == {selector.id for selector in named}
    for each in there:
        metadata = each.metadata
        expected = {
            selector.id
            for selector in named
            if (
                metadata.namespace in selector.namespaces
                or matches(selector.namespace_labels, spaces.get(metadata.namespace))
            )
            and matches(selector.labels, metadata.labels)
        }
        facts = history.state.pods.facts[metadata.uid]
        assert {id_ for id_ in selection.selectors if selection.selects(id_, facts.label_set)} == expected
        rows = selection.selecting(facts.label_set)
        assert {id_ for id_ in selection.selectors if rows[selection.selector_row(id_)]} == expected
        row = selection.row(facts.label_set)
        assert {id_ for id_ in selection.selectors if selection.selected_rows(id_)[row]} == expected


def matches(selector: LabelSelector, shown: dict[str, str] | None) -> bool:
    return selector.matches(shown or {})


def encoded(each: Object) -> bytes:
    return json.dumps({**each, "metadata": {**each["metadata"], "resourceVersion": "1"}}).encode()


@settings(max_examples=250, deadline=None)
@given(histories, st.randoms(use_true_random=False))
def test_a_replica_that_starts_later_has_the_same_classes(events: list[Event], chance: Any) -> None:
    early = History()
    alive = list(played(events, early).values())
    chance.shuffle(alive)
    late = History(settled=False)
    for resource, each in alive:
        late.page(resource, copy.deepcopy(each))
    settle(late.state)
    assert content(early) == content(late)
    assert offers(early) == offers(late)
    assert static(early) == static(late)


@settings(max_examples=250, deadline=None)
@given(histories, st.integers(0, 23))
def test_batches_with_classes_add_up_to_the_state(events: list[Event], sweep_at: int) -> None:
    history = History()
    known: dict[str, PodFacts] = {}
    nodes_told: dict[str, tuple[Amounts, dict[str, str]]] = {}
    volumes_told: dict[str, StaticVolume] = {}
    claims_told: dict[str, StaticClaim] = {}
    classes_told: set[str] = set()
    selection = PodSelection()
    told_of = history.state.apply

    def take(batch: Batch) -> None:
        classes_told.update(each.id for each in batch.pod_classes)
        selection.apply(batch)
        assert all(pod.class_id in classes_told and pod.label_set in selection.rows for pod in batch.pods)
        classes_told.difference_update(batch.removed_pod_classes)
        selection.forget(batch)

    def listen(changes: Any) -> Any:
        batch, left = told_of(changes)
        take(batch)
        assert not batch.pods or batch.changed
        known.update((pod.uid, pod) for pod in batch.pods)
        for uid in batch.removed_pods:
            del known[uid]
        nodes_told.update((node.name, (node.allocatable, node.labels)) for node in batch.nodes)
        for name in batch.removed_nodes:
            del nodes_told[name]
        volumes_told.update((each.name, each) for each in batch.static_volumes)
        claims_told.update((each.id, each) for each in batch.static_claims)
        for name in batch.removed_static_volumes:
            volumes_told.pop(name, None)
        for name in batch.removed_static_claims:
            claims_told.pop(name, None)
        return batch, left

    history.state.apply = listen  # type: ignore[method-assign]
    alive = played(events[:sweep_at], history)
    for _ in range(2):
        take(history.state.sweep())
    played(events[sweep_at:], history, alive)
    whole = PodSelection()
    whole.apply(history.state.snapshot())
    assert (selection.selectors, selection.rows.keys()) == (whole.selectors, whole.rows.keys())
    assert selection.namespaces == whole.namespaces
    assert {pod.class_id for pod in known.values()} <= classes_told
    assert {uid: replace(facts, revision=0) for uid, facts in known.items()} == content(history)
    assert nodes_told == offers(history)
    assert (volumes_told, claims_told) == static(history)


@settings(max_examples=100, deadline=None)
@given(histories)
def test_i11_nothing_is_kept_of_removed_objects(events: list[Event]) -> None:
    history = History()
    alive = played(events, history)
    played([(resource, each, False) for resource, each in alive.values()], history, alive)
    for _ in range(2):
        history.state.sweep()
    assert not any(size for kind, size in history.state.sizes().items() if kind != "trees")
