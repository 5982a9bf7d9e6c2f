"""Pods of one class may have several label sets; selectors and label sets come and go while pods run."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.gangs.labels import label_set_of, labelled, selector_of, with_labels
from builders.placement.clusters import alone, answers, node, pod_class, seats
from builders.placement.inter_pod_oracle import Seated, first_reason
from builders.placement.inter_pod_rules import HOST, RACK, affinity, anti_affinity, host_port, member, rack, spread
from builders.placement.random_clusters import NODES, pod_classes
from muster.gangs.facts import Batch, PodClass, PodFacts, kind_id
from muster.placement.solve.instance import NotPlaced, Placed
from muster.placement.state.cluster import Cluster


def pod(uid: str, class_id: str, on: str, label_set: str = "") -> PodFacts:
    return PodFacts(uid, "default", uid, class_id, node=on, label_set=label_set)


def two_racks(*classes: PodClass, labels: tuple[str, ...] = ()) -> Cluster:
    built = Cluster()
    nodes = (*rack("r0", {"a": 8}), *rack("r1", {"b": 8}))
    built.apply(with_labels(Batch(pod_classes=classes, nodes=nodes, label_sets=tuple(map(label_set_of, labels))), {}))
    return built


def test_anti_affinity_of_running_pods_keeps_away_the_label_sets_that_it_selects() -> None:
    built = two_racks(
        pod_class("plain"), member("hermit", labelled=(), **anti_affinity(RACK, "noisy")), labels=("noisy", "quiet")
    )
    built.apply(Batch(pods=(pod("h", "hermit", "a"),)))
    noisy, quiet = (kind_id("plain", each) for each in ("noisy", "quiet"))
    first, second, third = answers(built, alone("n", (noisy, 1)), alone("q", (quiet, 9)), alone("m", (noisy, 8)))
    assert seats(first) == {"b": 1}
    assert seats(second) == {"a": 7, "b": 2} or sum(seats(second).values()) == 9
    assert isinstance(third, NotPlaced)


def test_a_selector_that_comes_later_counts_the_pods_that_were_there() -> None:
    built = two_racks(pod_class("plain"), labels=("db", "web"))
    built.apply(Batch(pods=(pod("d", "plain", "a", "db"), pod("w", "plain", "b", "web"))))
    built.state.refresh()
    late = member("late", labelled=(), **anti_affinity(RACK, "db"))
    built.apply(with_labels(Batch(pod_classes=(late,)), {}))
    [answer] = answers(built, alone("g", ("late", 1)))
    assert seats(answer) == {"b": 1}
    built.apply(Batch(removed_pods=("d",), pods=(pod("e", "plain", "b", "db"),)))
    [answer] = answers(built, alone("g", ("late", 1)))
    assert seats(answer) == {"a": 1}


def test_a_label_set_that_comes_later_is_counted() -> None:
    built = two_racks(member("late", labelled=(), **affinity(RACK, "db")), pod_class("plain"))
    [answer] = answers(built, alone("g", ("late", 1)))
    assert isinstance(answer, NotPlaced)
    built.apply(Batch(label_sets=(label_set_of("db"),), pods=(pod("d", "plain", "b", "db"),)))
    [answer] = answers(built, alone("g", ("late", 1)))
    assert seats(answer) == {"b": 1}


def test_a_pod_whose_labels_change_is_counted_by_the_new_ones() -> None:
    built = two_racks(
        member("late", labelled=(), **anti_affinity(RACK, "db")), pod_class("plain"), labels=("db", "web")
    )
    built.apply(Batch(pods=(pod("d", "plain", "a", "db"), pod("e", "plain", "b", "web"))))
    assert seats(answers(built, alone("g", ("late", 1)))[0]) == {"b": 1}
    built.apply(Batch(pods=(pod("d", "plain", "a", "web"), pod("e", "plain", "b", "db"))))
    assert seats(answers(built, alone("g", ("late", 1)))[0]) == {"a": 1}


def test_a_label_set_that_is_not_known_is_selected_by_none() -> None:
    built = two_racks(pod_class("plain"), member("hermit", labelled=(), **anti_affinity(RACK, "db")))
    built.apply(Batch(pods=(pod("h", "hermit", "a"), pod("i", "hermit", "b"))))
    [answer] = answers(built, alone("g", (kind_id("plain", "gone"), 2)))
    assert isinstance(answer, Placed)


def test_roles_of_one_class_with_different_labels_mind_each_other() -> None:
    shy = member("shy", labelled=(), **anti_affinity(RACK, "red"))
    built = two_racks(shy, labels=("red", "blue"))
    red, blue = (kind_id("shy", each) for each in ("red", "blue"))
    assert isinstance(answers(built, alone("g", (red, 2)))[0], Placed)
    assert isinstance(answers(built, alone("g", (red, 3)))[0], NotPlaced)
    [answer] = answers(built, alone("g", (red, 1), (blue, 5)))
    assert isinstance(answer, Placed)
    by_role = {(each.role, each.node) for each in answer.assignments}
    assert not {on for role, on in by_role if role == 0} & {on for role, on in by_role if role == 1}


def test_i11_nothing_is_kept_of_removed_classes_selectors_and_label_sets() -> None:
    built = two_racks(pod_class("plain"))
    for index in range(40):
        name = f"c{index}"
        own = member(name, labelled=(name,), **anti_affinity(HOST, name), **host_port(8000 + index))
        built.apply(with_labels(Batch(pod_classes=(own,), pods=(pod(f"u{index}", name, "a"),)), {}))
        answers(built, alone("g", (name, 1)))
    names = tuple(f"c{index}" for index in range(40))
    built.apply(Batch(removed_pods=tuple(f"u{index}" for index in range(40))))
    built.apply(Batch(removed_pod_classes=names, removed_selectors=names, removed_label_sets=names))
    built.state.refresh()
    assert set(built.pod_classes) == set(built.capacity.classes) == {"plain"}
    assert (built.selection.selectors, built.selection.rows) == ({}, {})
    assert not built.state.pod_counts.follows and not built.state.pod_counts.terms
    assert built.state.pod_counts.entries().size == 0


class LazyCluster(Cluster):
    """Classes and label sets are applied before their first pod, and removed after their last."""

    def __init__(self, classes: dict[str, PodClass]) -> None:
        super().__init__()
        self.all_of_them = classes
        self.pods: dict[str, PodFacts] = {}

    def put(self, uid: str, class_id: str, on: str, deleting: bool) -> None:
        found = self.all_of_them[class_id]
        facts = PodFacts(uid, "d", uid, class_id, node=on, deleting=deleting, label_set=found.label_set)
        self.pods[uid] = facts
        self.apply(with_labels(Batch(pod_classes=(found,), pods=(facts,)), {}))

    def remove(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.apply(Batch(removed_pods=(uid,)))

    def sweep(self) -> None:
        used = {facts.class_id for facts in self.pods.values()}
        labels = {self.all_of_them[each].label_set for each in used}
        named = {
            each.id for each in with_labels(Batch(pod_classes=tuple(self.all_of_them[i] for i in used)), {}).selectors
        }
        self.apply(
            Batch(
                removed_pod_classes=tuple(self.pod_classes.keys() - used),
                removed_selectors=tuple(self.selection.selectors.keys() - named),
                removed_label_sets=tuple(self.selection.rows.keys() - labels),
            )
        )


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from(["u0", "u1", "u2", "u3"]),
            st.sampled_from(["c0", "c1", "c2"]),
            st.sampled_from(NODES),
            st.booleans(),
        ),
        st.tuples(st.just("remove"), st.sampled_from(["u0", "u1", "u2", "u3"])),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("look")),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(st.tuples(*(pod_classes(f"c{index}", crowded=True) for index in range(3))), steps)
def test_counts_follow_classes_and_label_sets_that_come_and_go(
    classes: tuple[PodClass, ...], history: list[tuple[Any, ...]]
) -> None:
    known = {each.id: each for each in classes}
    cluster = LazyCluster(known)
    nodes = [
        node(name, 3, labels={"host": name, "rack": f"r{index % 2}", "zone": "z0"}) for index, name in enumerate(NODES)
    ]
    cluster.apply(Batch(nodes=tuple(nodes)))
    for step, *rest in [*history, ("look",)]:
        match step:
            case "put":
                cluster.put(*rest)
            case "remove":
                cluster.remove(*rest)
            case "sweep":
                cluster.sweep()
            case _:
                cluster.apply(with_labels(Batch(pod_classes=classes), {}))
                cluster.state.refresh()
                there = [Seated(known[each.class_id], each.node, each.deleting) for each in cluster.pods.values()]
                for each in classes:
                    fits = cluster.state.of(each.id).fits
                    for on in nodes:
                        row = cluster.nodes.row(on.name)
                        assert row is not None
                        assert bool(fits[row]) == (first_reason(each, on, nodes, there) is None), (each.id, on.name)


def test_selectors_of_spreading_count_every_label_set_of_a_class() -> None:
    built = two_racks(
        member("even", labelled=(), **spread(RACK)), labels=(labelled("job", "i0"), labelled("job", "i1"), "other")
    )
    built.apply(
        Batch(pods=(pod("x", "even", "a", "i0+job"), pod("y", "even", "a", "i1+job"), pod("z", "even", "b", "other")))
    )
    [answer] = answers(built, alone("g", (kind_id("even", "i0+job"), 2)))
    assert seats(answer) == {"b": 2}
    assert selector_of("job").id in built.selection.selectors
