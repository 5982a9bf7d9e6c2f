"""Filters over all nodes agree with the rules for a single node."""

from hypothesis import given, settings

from builders.placement.clusters import GPU, node, pod_class
from builders.placement.random_nodes import changes, classes
from muster.gangs.facts import NodeFacts, PodClass, Taint, TaintEffect
from muster.gangs.node_filters import filter_reason, prefer_no_schedule_count, preferred_affinity_score
from muster.placement.state.filters import ABSENT, USABLE, NodeFilters
from muster.placement.state.nodes import NodeTable


@settings(max_examples=300)
@given(classes, changes)
def test_filters_agree_with_single_node_rules_after_changes(
    asked: PodClass, history: list[list[NodeFacts | str]]
) -> None:
    table, present, rows = NodeTable(), dict[str, NodeFacts](), dict[str, int]()
    filters = NodeFilters(asked, table)
    for batch in history:
        for change in batch:
            if isinstance(change, str):
                table.drop([change])
                present.pop(change, None)
            else:
                row = rows.setdefault(change.name, len(rows))
                table.put([(row, change)], rows=row + 1)
                present[change.name] = change
        filters.refresh()
        for name, row in rows.items():
            code = filters.reason[row]
            if name not in present:
                assert code == ABSENT
                continue
            assert (None if code == USABLE else filters.reasons[code]) == filter_reason(asked, present[name])
        usable = [name for name in present if filters.reason[rows[name]] == USABLE]
        by_dislike = sorted(usable, key=lambda name: (int(filters.penalty[rows[name]]), name))
        assert by_dislike == sorted(usable, key=lambda name: (_expected_dislike(asked, present[name]), name))
        assert len(filters.penalties) == len({_expected_dislike(asked, present[name]) for name in usable})


def _expected_dislike(asked: PodClass, of: NodeFacts) -> tuple[int, int, int]:
    unneeded = dict(of.allocatable).get(GPU, 0) > 0 and not dict(asked.requests).get(GPU)
    return prefer_no_schedule_count(asked.tolerations, of.taints), -preferred_affinity_score(asked, of), int(unneeded)


def test_order_and_rank_are_by_name() -> None:
    table = NodeTable()
    table.put([(2, node("b")), (0, node("c")), (5, node("a"))], rows=6)
    assert table.order.tolist() == [5, 2, 0]
    assert [int(table.rank[row]) for row in (5, 2, 0)] == [0, 1, 2]
    table.drop(["b"])
    assert table.order.tolist() == [5, 0]


def test_nodes_taints_and_labels_of_the_past_are_forgotten() -> None:
    table, sizes = NodeTable(), []
    filters = NodeFilters(pod_class("x", selector={"build": "1"}), table)
    for number in range(4000):
        taint = Taint("build", str(number), TaintEffect.NO_SCHEDULE)
        labels = {"build": str(number), f"build-{number}": ""}
        table.put([(0, node(f"n{number}", labels=labels, taints=[taint]))], rows=1)
        filters.refresh()
        table.domains(f"build-{number}")
        table.domains("build")
        table.drop([f"n{number}"])
        columns = sum(len(column.values) for column in table._columns.values())
        sizes.append(columns + sum(map(len, (table._domains, table.kinds, filters._by_kind, filters.reasons))))
    assert max(sizes) < 4000


def test_a_node_that_is_like_one_of_the_past_is_filtered_by_its_own_taints() -> None:
    table = NodeTable()
    picky = NodeFilters(pod_class("x"), table)
    for number in range(3000):
        effect = TaintEffect.NO_SCHEDULE if number % 3 else TaintEffect.PREFER_NO_SCHEDULE
        table.put([(0, node("a", taints=[Taint("build", str(number), effect)]))], rows=1)
        picky.refresh()
        assert bool(picky.reason[0] == USABLE) is (number % 3 == 0)
