"""Groups with composites: which gangs are placed, and that they share domains."""

import pytest

from builders.placement.clusters import answers, node, potential_victim, refusal, removals
from builders.placement.composite_cases import has_placement, problems_of, random_composites
from builders.placement.small_instances import answer_to
from builders.placement.trees import tree_cluster
from muster.gangs.facts import Batch, LevelConstraint, LevelPolicy
from muster.gangs.solve import Composite, Role, SolveGang, SolveGroup
from muster.placement.solve.instance import Answer, NotPlaced, Placed

CASES = 240


def leaf(name: str, members: int, *, composite: int = 0, minimum: int | None = None, rack: bool = False) -> SolveGang:
    constraints = (LevelConstraint("rack", LevelPolicy.PACK, hard=True),) if rack else ()
    return SolveGang(
        name, members if minimum is None else minimum, (Role("x", members),), "", constraints, composite=composite
    )


def answer_on(tree: str, gangs: list[SolveGang], *composites: Composite, levels: str = "rack node") -> Answer:
    group = SolveGroup("g", tuple(gangs), composites=composites)
    [answer] = answers(tree_cluster(tree, levels), group)
    return answer


def nodes_of(answer: Answer) -> dict[str, set[str]]:
    assert isinstance(answer, Placed), answer
    found: dict[str, set[str]] = {}
    for each in answer.assignments:
        found.setdefault(each.gang, set()).add(each.node)
    return found


@pytest.mark.parametrize("part", range(8))
def test_small_groups_are_placed_if_and_only_if_that_is_possible(part: int) -> None:
    for number in range(part * CASES // 8, (part + 1) * CASES // 8):
        case = random_composites(number)
        answer = answer_to(case)
        if isinstance(answer, Placed):
            assert not problems_of(case, answer), number
        else:
            assert isinstance(answer, NotPlaced)
            assert not has_placement(case), number


def test_gangs_of_a_composite_share_its_domain() -> None:
    answer = answer_on("r0(a:3) r1(b:2,c:2)", [leaf("one", 2), leaf("two", 2)], Composite(2, level="rack"))
    assert set().union(*nodes_of(answer).values()) == {"b", "c"}


def test_without_a_domain_that_holds_all_nothing_is_placed_and_that_is_proved() -> None:
    refused = refusal(answer_on("r0(a:3) r1(b:3)", [leaf("one", 2), leaf("two", 2)], Composite(2, level="rack")))
    assert refused.proved
    assert "1 of 2 subgroups fit within one rack" in refused.explanation.summary
    assert refused.explanation.gang == "two"


def test_composites_share_a_domain_in_that_of_their_parent() -> None:
    gangs = [leaf("one", 2, composite=1), leaf("two", 2, composite=2)]
    composites = (Composite(2, level="zone"), Composite(1, 0, level="rack"), Composite(1, 0, level="rack"))
    tree = "z0(r0(a:2) r1(b:1)) z1(r2(c:2) r3(d:2))"
    assert nodes_of(answer_on(tree, gangs, *composites, levels="zone rack node")) == {"one": {"c"}, "two": {"d"}}


def test_as_many_gangs_as_needed_are_placed_and_more_if_they_fit() -> None:
    gangs = [leaf(name, 2, rack=True) for name in ("one", "two", "three")]
    assert len(nodes_of(answer_on("r0(a:2) r1(b:2) r2(c:1)", gangs, Composite(2)))) == 2
    assert len(nodes_of(answer_on("r0(a:2) r1(b:2) r2(c:2)", gangs, Composite(2)))) == 3
    assert refusal(answer_on("r0(a:2) r1(b:1) r2(c:1)", gangs, Composite(2))).proved


def test_a_domain_that_holds_all_gangs_is_taken_first() -> None:
    gangs = [leaf(name, 2) for name in ("one", "two", "three")]
    placed = nodes_of(answer_on("r0(a:4) r1(b:7) r2(c:3)", gangs, Composite(2, level="rack")))
    assert placed == {name: {"b"} for name in ("one", "two", "three")}
    assert len(nodes_of(answer_on("r0(a:4) r1(b:5) r2(c:3)", gangs, Composite(2, level="rack")))) == 2


def test_gangs_that_are_created_first_do_not_keep_smaller_ones_out() -> None:
    gangs = [leaf("large", 4), leaf("small", 2), leaf("tiny", 2)]
    assert set(nodes_of(answer_on("r0(a:5)", gangs, Composite(2)))) == {"small", "tiny"}


def test_a_least_number_of_members_counts_those_above_minimums() -> None:
    gangs = [leaf("one", 3, minimum=1, rack=True), leaf("two", 3, minimum=1, rack=True)]
    assert isinstance(answer_on("r0(a:3) r1(b:2)", gangs, Composite(2, minimum_members=5)), Placed)
    assert refusal(answer_on("r0(a:3) r1(b:2)", gangs, Composite(2, minimum_members=6)))


def test_members_placed_earlier_fix_the_domain() -> None:
    gangs = [leaf("one", 2)]
    answer = answer_on("r0(a:2) r1(b:3)", gangs, Composite(1, level="rack", placed=("b",)))
    assert nodes_of(answer) == {"one": {"b"}}
    assert refusal(answer_on("r0(a:2) r1(b:3)", gangs, Composite(1, level="rack", placed=("a", "b")))).proved


def test_nodes_outside_of_the_tree_are_in_no_domain() -> None:
    built = tree_cluster("r0(a:1)")
    built.apply(Batch(nodes=(node("stray", 9),)))
    group = SolveGroup("g", (leaf("one", 2),), composites=(Composite(1, level="rack"),))
    assert refusal(answers(built, group)[0]).proved


def test_preemption_frees_one_domain_for_all_gangs() -> None:
    built = tree_cluster("r0(a:2) r1(b:3)", placed={"a": 2, "b": 1})
    group = SolveGroup("g", (leaf("one", 2), leaf("two", 2)), composites=(Composite(2, level="rack"),))
    victims = [potential_victim("first", ("a", "x", 2)), potential_victim("second", ("b", "x", 1))]
    [answer] = answers(built, group, removing=victims)
    assert len(removals(answer)) == 1
    assert len(set().union(*nodes_of(answer).values())) == 1


def test_many_subgroups_each_get_a_rack() -> None:
    tree = " ".join(f"r{rack}(" + ",".join(f"n{rack}-{at}:2" for at in range(4)) + ")" for rack in range(20))
    gangs = [leaf(f"s{number}", 8) for number in range(20)]
    gangs = [SolveGang(each.id, 8, each.roles, composite=1 + at) for at, each in enumerate(gangs)]
    composites = [Composite(20), *(Composite(1, 0, level="rack") for _ in gangs)]
    placed = nodes_of(answer_on(tree, gangs, *composites))
    assert all(len({name.split("-")[0] for name in names}) == 1 for names in placed.values())
    assert len(placed) == 20
