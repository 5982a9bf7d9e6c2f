"""The nodes that accept a class, computed for all nodes at once, are those that kube-scheduler would accept."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.placement.clusters import node as machine
from builders.placement.inter_pod_oracle import Seated, first_reason
from builders.placement.inter_pod_rules import HOST
from builders.placement.labels import LabelledCluster
from builders.placement.random_clusters import KEYS, NODES, RandomCluster, machines, pod_classes, random_clusters
from muster.gangs.facts import Batch, NodeFacts, PodClass, PodFacts, PodTerm
from muster.placement.state.cluster import Cluster


def build(drawn: RandomCluster) -> Cluster:
    cluster = LabelledCluster()
    pods = tuple(PodFacts(uid, "d", uid, of, node=on, deleting=gone) for uid, of, on, gone in drawn.bound)
    cluster.apply(Batch(pod_classes=tuple(drawn.classes), nodes=tuple(drawn.nodes), pods=pods))
    cluster.state.refresh()
    return cluster


def seated(drawn: RandomCluster) -> list[Seated]:
    by_id = {each.id: each for each in drawn.classes}
    return [Seated(by_id[of], on, gone) for _, of, on, gone in drawn.bound]


def check(cluster: Cluster, nodes: Sequence[NodeFacts], classes: Sequence[PodClass], there: Sequence[Seated]) -> None:
    """On each node, `fits` of each class is the number of pods that can be bound one after another."""
    for each in classes:
        fits = cluster.state.of(each.id).fits
        for node in nodes:
            row = cluster.nodes.row(node.name)
            assert row is not None
            present = list(there)
            while first_reason(each, node, nodes, present) is None and len(present) < len(there) + 6:
                present.append(Seated(each, node.name))
            assert min(int(fits[row]), 6) == len(present) - len(there), (each, node.name)


@settings(max_examples=200, deadline=None)
@given(random_clusters())
def test_fits_equals_pods_bindable_one_after_another(drawn: RandomCluster) -> None:
    check(build(drawn), drawn.nodes, drawn.classes, seated(drawn))


@settings(max_examples=200, deadline=None)
@given(random_clusters(), st.data())
def test_reservations_count_until_rolled_back(drawn: RandomCluster, data: st.DataObject) -> None:
    cluster, there = build(drawn), seated(drawn)
    state, by_id = cluster.state, {each.id: each for each in drawn.classes}
    before = {each.id: state.of(each.id).fits.copy() for each in drawn.classes[:2]}  # the last class is added later
    places = st.tuples(st.sampled_from(drawn.classes), st.sampled_from(drawn.nodes), st.integers(1, 2))
    taken = data.draw(st.lists(places, max_size=4))
    for each, node, count in taken:
        row = cluster.nodes.row(node.name)
        assert row is not None
        state.reserve_unchecked(state.of(each.id), np.array([row]), np.array([count]))
    there += [Seated(by_id[each.id], node.name) for each, node, count in taken for _ in range(count)]
    check(cluster, drawn.nodes, drawn.classes, there)
    state.rollback(0)
    check(cluster, drawn.nodes, drawn.classes, seated(drawn))
    for class_id, fits in before.items():
        assert np.array_equal(state.of(class_id).fits, fits)


changes = st.lists(
    st.one_of(
        st.tuples(
            st.just("pod"),
            st.sampled_from(["u0", "u1", "u2"]),
            st.sampled_from(["c0", "c1", "c2"]),
            st.sampled_from(NODES),
            st.booleans(),
        ),
        st.tuples(st.just("gone"), st.sampled_from(["u0", "u1", "u2"])),
        st.tuples(st.just("drop"), st.sampled_from(NODES)),
        st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(KEYS), st.sampled_from(["x", "y", "r0"])),
    ),
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(machines(), st.tuples(*(pod_classes(f"c{index}") for index in range(3))), st.lists(changes, max_size=3))
def test_changes_of_the_cluster_are_applied(
    nodes: list[NodeFacts], classes: tuple[PodClass, ...], history: list[list[tuple[str, ...]]]
) -> None:
    cluster = LabelledCluster()
    by_name, pods = {node.name: node for node in nodes}, dict[str, PodFacts]()
    cluster.apply(Batch(pod_classes=classes, nodes=tuple(nodes)))
    for batch in history:
        for change in batch:
            match change:
                case ("pod", uid, class_id, on, deleting):
                    pods[uid] = PodFacts(uid, "d", uid, class_id, node=on, deleting=bool(deleting))
                    cluster.apply(Batch(pods=(pods[uid],)))
                case ("gone", uid):
                    pods.pop(uid, None)
                    cluster.apply(Batch(removed_pods=(uid,)))
                case ("drop", name):
                    by_name.pop(name, None)
                    cluster.apply(Batch(removed_nodes=(name,)))
                case (_, name, key, value):
                    labels = {**(by_name[name].labels if name in by_name else {}), key: value}
                    by_name[name] = NodeFacts(name, allocatable=(("cpu", 3000), ("pods", 110)), labels=labels)
                    cluster.apply(Batch(nodes=(by_name[name],)))
        cluster.state.refresh()
        by_id = {each.id: each for each in classes}
        there = [Seated(by_id[pod.class_id], pod.node, pod.deleting) for pod in pods.values()]
        check(cluster, list(by_name.values()), classes, there)


def test_removed_nodes_leave_no_counts_behind() -> None:
    lonely = PodClass("x", (("pods", 1),), label_set="s", required_pod_anti_affinity=(PodTerm("s", HOST),))
    cluster = LabelledCluster()
    cluster.apply(Batch(pod_classes=(lonely,)))
    for index in range(1_100):
        names = f"a{index}", f"b{index}"
        nodes = tuple(machine(name, labels={HOST: name}) for name in names)
        pod = PodFacts(f"u{index}", "d", "p", "x", node=names[0])
        cluster.apply(Batch(nodes=nodes, pods=(pod,)))
        cluster.state.refresh()
        fits = cluster.state.of("x").fits
        assert [int(fits[cluster.nodes.row(name)]) for name in names] == [0, 1]
        cluster.apply(Batch(removed_nodes=names, removed_pods=(pod.uid,)))
    assert cluster.nodes.domains(HOST).size < 1_100
