"""Records of pods and the counts that follow them are bounded, however long the cluster and its solves go on (I11)."""

import numpy as np

from builders.gangs.labels import with_labels
from builders.placement.clusters import alone, answers, pod_class
from builders.placement.inter_pod_rules import HOST, anti_affinity, member, rack
from muster.gangs.facts import Batch, PodClass, PodFacts, PodTerm
from muster.placement.inter_pod.pod_counts import MAX_SUMS
from muster.placement.inter_pod.pod_records import MAX_PENDING_MOVES
from muster.placement.solve.instance import NotPlaced, Placed
from muster.placement.state.cluster import Cluster


def cluster(*classes: PodClass) -> Cluster:
    built = Cluster()
    built.apply(with_labels(Batch(pod_classes=classes, nodes=(*rack("r0", {"a": 16, "b": 8}),)), {}))
    return built


def delete_and_remove(built: Cluster, pods: int, batch: int = 50) -> None:
    """So many pods run, are deleted, and are gone, in batches that wait for the next solve."""
    for first in range(0, pods, batch):
        uids = [f"u{number}" for number in range(first, min(first + batch, pods))]
        built.apply(Batch(pods=tuple(PodFacts(uid, "d", uid, "plain", node="a", deleting=True) for uid in uids)))
        built.apply(Batch(removed_pods=tuple(uids)))


def test_i11_placed_pods_end_with_the_next_solve_of_a_quiet_cluster() -> None:
    built = cluster(member("one", labelled=("one",), **anti_affinity(HOST, "one")))
    kept = set()
    for _ in range(20):
        [answer] = answers(built, alone("g", ("one", 2)))
        assert isinstance(answer, Placed)
        built.state.refresh()
        kept.add(len(built.state.pod_counts.placed))
    assert kept == {0}
    [answer] = answers(built, alone("g", ("one", 3)))
    assert isinstance(answer, NotPlaced)


def test_i11_deletions_are_taken_over_when_there_is_no_solve() -> None:
    built = cluster(pod_class("plain"))
    delete_and_remove(built, MAX_PENDING_MOVES * 3 // 4)
    assert built.state.pod_counts.pending_moves <= MAX_PENDING_MOVES


def test_i11_the_log_of_changes_is_bounded_by_deletions_too() -> None:
    built = cluster(pod_class("plain"))
    built.state.refresh()
    counts = built.state.pod_counts
    before = counts.generation
    delete_and_remove(built, 10, batch=1)
    built.state.refresh()
    assert counts.moves_since(before)
    before = counts.generation
    delete_and_remove(built, MAX_PENDING_MOVES // 4)
    built.state.refresh()
    assert counts.moves_since(before) is None, "too many to be kept: counts add up all pods instead"


def test_i11_a_count_is_summed_up_by_few_labels_whatever_rules_name() -> None:
    built = cluster(member("stays", labelled=("s",), **anti_affinity(HOST, "s")))
    answers(built, alone("g", ("stays", 1)))
    count = built.state.pod_counts.selected(["s"])
    for number in range(2 * MAX_SUMS):
        name = f"c{number}"
        passing = member(name, labelled=("x",), **anti_affinity(f"label-{number}", "s"))
        built.apply(with_labels(Batch(pod_classes=(passing,)), {}))
        assert isinstance(answers(built, alone("g", (name, 1)))[0], Placed)
        built.apply(Batch(removed_pod_classes=(name,)))
    assert len(vars(count)["_sums"]) == MAX_SUMS


def test_a_count_takes_in_all_pods_placed_since_it_was_read_at_once() -> None:
    built = cluster(member("one", 1, labelled=("one",), **anti_affinity(HOST, "one")), pod_class("plain"))
    state = built.state
    state.refresh()
    count, of_class, plain = state.pod_counts.selected(["one"]), state.of("one"), state.of("plain")
    before = count.version
    row = np.array([state.nodes.row("a")], np.int64)
    for _ in range(5):
        state.reserve(of_class, row, np.array([1]))
        state.reserve(plain, row, np.array([1]))
    assert int(count.per_node[row[0]]) == 5
    assert count.version == before + 1, "one change of arrays, however many pods there are"
    state.rollback(0)
    assert not count.per_node.any()


def test_i11_topology_keys_that_no_node_has_make_no_rules_for_the_pods_of_others() -> None:
    """Pods that wait may have 100 terms each, to pods of all namespaces, of labels that nobody has."""
    selecting = tuple(PodTerm("s", f"key-{number}") for number in range(100))
    others = [member(f"o{number}", labelled=("o",), required_pod_anti_affinity=selecting) for number in range(3)]
    built = cluster(member("stays", labelled=("s",)), *others)
    built.state.refresh()
    rules = built.state.of("stays").rules
    assert rules is not None
    assert not rules.required
    assert not rules.apply


def test_anti_affinity_of_others_applies_from_when_a_node_gets_its_topology_label() -> None:
    other = member("other", labelled=("o",), **anti_affinity("row", "s"))
    built = cluster(member("stays", labelled=("s",)), other)
    built.apply(with_labels(Batch(pods=(PodFacts("u", "d", "u", "other", node="a"),)), {}))
    for row, fits in (("", 23), ("1", 8), ("", 23), ("2", 8)):
        built.apply(Batch(nodes=tuple(rack("r0", {"a": 16}, **({"row": row} if row else {})))))
        for wanted, expected in ((fits, Placed), (fits + 1, NotPlaced)):
            [answer] = answers(built, alone("g", ("stays", wanted)))
            assert isinstance(answer, expected), (row, wanted)
