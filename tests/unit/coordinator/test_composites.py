"""Gangs in composites: they start together and share domains."""

import pytest
from msgspec.structs import replace

from builders.core.actions import end, evicted, full, until
from builders.core.objects import node, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Persist, RejectionReason, Solve
from muster.coordinator.core.gang.composite_trees import least_members
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import MatchPolicy
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult

BOTH = ("default/a", "default/b")


def in_racks(nodes: dict[str, int], **of_rack: str) -> Scenario:
    scenario = Scenario(nodes)
    scenario.change(trees=[racks(**of_rack)])
    return scenario


def pair(size: int, *, level: str = "rack") -> list[CoreGang]:
    """Gangs a and b, which share a domain."""
    return [gang(name).of(size).with_group(*BOTH).in_composites(both=level) for name in ("a", "b")]


def racks_of(scenario: Scenario, *names: str) -> set[str]:
    pods = scenario.cluster.pods.values()
    gangs = {f"test/default/{name}" for name in names}
    return {scenario.cluster.rack_of(pod.node) for pod in pods if pod.gang in gangs and pod.node}


def test_gangs_of_a_composite_start_together_in_one_domain() -> None:
    scenario = in_racks({"a": 3, "c": 2, "d": 2}, r0="a", r1="c d")
    first, second = pair(2)
    scenario.add(first)
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.add(second)
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 2)
    assert racks_of(scenario, "a", "b") == {"r1"}


def test_gangs_that_fit_no_domain_together_wait() -> None:
    scenario = in_racks({"a": 3, "c": 3}, r0="a", r1="c")
    scenario.add(*pair(2))
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 0)


def test_composites_without_a_domain_are_a_gang_group() -> None:
    scenario = in_racks({"a": 2, "c": 2}, r0="a", r1="c")
    scenario.add(*pair(2, level=""))
    [group] = scenario.only(Solve).groups
    assert not group.composites
    scenario.run()
    assert racks_of(scenario, "a", "b") == {"r0", "r1"}


def test_nested_composites_are_sent_once_each() -> None:
    scenario = in_racks({"a": 4}, r0="a")
    names = ("default/a", "default/b", "default/c")
    a, b = (gang(name).of(1).with_group(*names).in_composites(2, 2, all="rack", inner="node") for name in ("a", "b"))
    scenario.add(a, b, gang("c").of(1).with_group(*names).in_composites(2, all="rack"))
    [group] = scenario.only(Solve).groups
    assert [(each.level, each.parent, each.minimum) for each in group.composites] == [("rack", -1, 2), ("node", 0, 2)]
    assert {each.id[-1]: each.composite for each in group.gangs} == {"a": 1, "b": 1, "c": 0}


def test_later_members_of_one_gang_stay_in_the_domain_of_all() -> None:
    scenario = in_racks({"a": 1, "c": 3}, r0="a", r1="c")
    first, second = pair(1)
    later = replace_minimum(first.of(2))
    pods = later.pods()
    scenario.change(gangs=[later.gang_facts(), second.gang_facts()], pods=[pods[0], *second.pods()])
    scenario.run()
    started = racks_of(scenario, "a", "b")
    assert started == {"r1"}
    scenario.change(nodes=[node("a", 9)])
    scenario.change(pods=[pods[1]])
    scenario.run()
    assert scenario.bound("a") == 2
    assert racks_of(scenario, "a", "b") == started


def replace_minimum(of: CoreGang) -> CoreGang:
    return of.needing(1).with_match_policy(MatchPolicy.ONCE_SATISFIED)


def test_an_answer_that_divides_a_composite_is_rejected() -> None:
    scenario = in_racks({"a": 4, "c": 4}, r0="a", r1="c")

    def wrong(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        seats = [Assignment(each.id, 0, node, 2) for each, node in zip(group.gangs, ("a", "c"), strict=True)]
        return (SolveResult(group.id, SolveOutcome.PLACED, tuple(seats)),)

    scenario.solver = wrong
    scenario.add(*pair(2))
    scenario.run()
    assert scenario.bound("a") == 0
    assert set(scenario.gang("a").attempts.rejections) == {RejectionReason.CONSTRAINT}


def test_a_level_that_the_tree_lacks_is_named_with_the_composite() -> None:
    scenario = Scenario({"a": 4})
    scenario.add(*pair(2))
    scenario.run()
    assert 'composite "both": constraint "rack: hard pack" is on a level' in reason(scenario.gang("a"))
    scenario.change(trees=[racks(r0="a")])
    scenario.run()
    assert scenario.bound("a") == 2


def test_a_node_that_leaves_the_domain_keeps_later_members_waiting() -> None:
    scenario = in_racks({"a": 2, "b": 2, "c": 4}, r0="a b", r1="c")
    scenario.add(*pair(2))
    scenario.run()
    assert len(racks_of(scenario, "a", "b")) == 1
    lost = next(pod for pod in scenario.cluster.pods.values() if pod.gang == "test/default/a")
    where = scenario.cluster.rack_of(lost.node)
    scenario.change(
        remove_pods=[lost.uid], pods=[replace(lost, uid="again", node="", phase=gang("x").of(1).pods()[0].phase)]
    )
    scenario.run()
    assert racks_of(scenario, "a", "b") == {where}


# -- some of the children


def some(needed: int, *names: str, level: str = "", size: int = 2) -> list[CoreGang]:
    """Gangs of a composite that needs so many of them."""
    group = [f"default/{name}" for name in names]
    return [gang(name).of(size).with_group(*group).in_composites(needed, server=level) for name in names]


def started(scenario: Scenario, *names: str) -> list[str]:
    return [name for name in names if scenario.bound(name) == 2]


def test_as_many_gangs_as_the_composite_needs_start_and_the_others_when_they_fit() -> None:
    scenario = Scenario({"n": 5})
    scenario.add(*some(2, "a", "b", "c"))
    scenario.run()
    assert len(started(scenario, *"abc")) == 2
    [left] = [name for name in "abc" if not scenario.bound(name)]
    assert reason(scenario.gang(left)).startswith(f"gang default/{left} cannot start: ")
    scenario.change(nodes=[node("m", 2)])
    scenario.run()
    assert started(scenario, *"abc") == ["a", "b", "c"]


def test_optional_gangs_wait_on_their_own_and_for_their_own_reasons() -> None:
    scenario = Scenario({"n": 2})
    first, *others = some(1, "a", "b", "c")
    scenario.add(first)
    scenario.run()
    scenario.add(others[0].of(3), others[1].of(4).needing(5))
    scenario.run()
    assert reason(scenario.gang("b")).startswith("gang default/b cannot start: ")
    assert reason(scenario.gang("c")) == "gang default/c is pending: 4 of 5 members exist"
    scenario.change(gangs=[others[1].of(4).gang_facts()])
    scenario.run()
    assert scenario.gang("b").group is not scenario.gang("c").group
    scenario.change(nodes=[node("m", 4)])
    scenario.run()
    assert scenario.bound("b") == 3, "the first in the queue"


def test_gangs_that_fit_are_chosen_not_those_that_were_created_first() -> None:
    scenario = Scenario({"n": 4})
    large, *small = some(2, "a", "b", "c")
    scenario.add(large.of(5), *small)
    scenario.run()
    assert started(scenario, *"abc") == ["b", "c"]
    assert scenario.bound("a") == 0


def test_victims_are_evicted_for_a_gang_that_starts() -> None:
    scenario = full(gang("low").of(4), nodes={"n": 4})
    large, small = some(1, "a", "b")
    scenario.add(large.of(5).with_priority(1), small.with_priority(1))
    scenario.run_effects()
    assert scenario.gang("low").eviction.preempted_by == "test/default/b"
    end(scenario)
    assert started(scenario, "a", "b") == ["b"]


def test_fewer_gangs_than_the_composite_needs_do_not_start() -> None:
    scenario = Scenario({"n": 3})
    scenario.add(*some(2, "a", "b", "c"))
    scenario.run()
    assert not started(scenario, *"abc")
    assert scenario.bound("a") + scenario.bound("b") + scenario.bound("c") == 0


def test_gangs_that_are_not_complete_do_not_keep_enough_others_waiting() -> None:
    scenario = Scenario({"n": 9})
    a, b, c = some(2, "a", "b", "c")
    scenario.add(a)
    scenario.run()
    starts = 'composite "server" starts with at least 2 of its groups, and 1 can start'
    assert reason(scenario.gang("a")) == f"gang default/a is pending: {starts}; default/b, default/c cannot"
    scenario.add(b.of(3).needing(4))
    scenario.run()
    assert scenario.bound("a") == 0
    assert reason(scenario.gang("b")) == "gang default/b is pending: 3 of 4 members exist"
    scenario.add(c)
    scenario.run()
    assert started(scenario, *"abc") == ["a", "c"]
    scenario.change(gangs=[b.of(3).needing(3).gang_facts()])
    scenario.run()
    assert scenario.bound("b") == 3


def test_optional_gangs_share_the_domain_of_those_that_started() -> None:
    scenario = in_racks({"a": 5, "c": 4}, r0="a", r1="c")
    scenario.add(*some(2, "a", "b", "c", level="rack"))
    scenario.run()
    first = racks_of(scenario, *"abc")
    assert len(first) == 1
    scenario.change(nodes=[node("d", 9)], trees=[racks(r0="a", r1="c", r2="d")])
    scenario.run()
    assert len(started(scenario, *"abc")) == 2, "the third waits for its domain"
    grown = "a" if first == {"r0"} else "c"
    scenario.change(nodes=[node(grown, 9)])
    scenario.run()
    assert started(scenario, *"abc") == ["a", "b", "c"]
    assert racks_of(scenario, *"abc") == first


def test_one_that_ends_is_replaced_by_any_other_of_the_composite() -> None:
    scenario = Scenario({"n": 5})
    scenario.add(*some(2, "a", "b", "c"))
    scenario.run()
    up = started(scenario, *"abc")
    lost = [pod for pod in scenario.cluster.pods.values() if pod.gang == f"test/default/{up[0]}"]
    scenario.change(remove_pods=[pod.uid for pod in lost], remove_gangs=[lost[0].gang])
    scenario.run()
    assert len(started(scenario, *"abc")) == 2


def test_a_nested_composite_counts_when_as_many_of_its_own_start_as_it_needs() -> None:
    names = [f"default/{name}" for name in "abcde"]
    inner = [gang(name).of(2).with_group(*names).in_composites(2, 2, root="", left="") for name in "abc"]
    outer = [gang(name).of(2).with_group(*names).in_composites(2, root="") for name in "de"]
    scenario = Scenario({"n": 5})
    scenario.add(*inner[:1], *outer[:1])
    scenario.run()
    assert not started(scenario, *"abcde")
    scenario.add(*inner[1:2])
    scenario.run()
    assert not started(scenario, *"abcde"), "three gangs do not fit"
    scenario.change(nodes=[node("n", 6)])
    scenario.run()
    assert started(scenario, *"abcde") == ["a", "b", "d"]
    scenario.add(*inner[2:], *outer[1:])
    scenario.change(nodes=[node("n", 10)])
    scenario.run()
    assert started(scenario, *"abcde") == ["a", "b", "c", "d", "e"]


def test_an_edit_of_the_number_while_it_is_solved_is_not_overlooked() -> None:
    scenario = Scenario({"n": 1})
    scenario.add(*some(1, "a", "b"))
    scenario.run()
    scenario.change(nodes=[node("n", 3)])
    solve = scenario.only(Solve)
    scenario.change(gangs=[each.gang_facts() for each in some(2, "a", "b")])
    scenario.do(scenario.under_way.index(solve))
    assert not [each for each in scenario.under_way if isinstance(each, Persist)], "nothing is permitted"
    scenario.run()
    assert not started(scenario, "a", "b")


@pytest.mark.parametrize("names", ["ab", "abc"], ids=["all are needed", "two of three"])
def test_an_answer_with_fewer_children_than_needed_is_rejected(names: str) -> None:
    scenario = Scenario({"n": 1})
    scenario.add(*some(2, *names))
    scenario.run()
    scenario.change(nodes=[node("n", 5)])

    def one(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        return (SolveResult(group.id, SolveOutcome.PLACED, (Assignment(group.gangs[0].id, 0, "n", 2),)),)

    scenario.solver = one
    scenario.run()
    assert not started(scenario, *names)
    assert scenario.gang("a").attempts.rejections


def test_an_edit_of_the_number_while_the_permit_is_written_undoes_it() -> None:
    scenario = Scenario({"n": 3})
    scenario.add(some(1, "a", "b")[0])
    until(scenario, Persist, lambda effect: bool(effect.puts))
    scenario.change(gangs=[some(2, "a", "b")[0].gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(gangs=[some(1, "a", "b")[0].gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 2


@pytest.mark.parametrize("effects", range(12))
def test_whenever_the_coordinator_crashes_enough_children_start(effects: int) -> None:
    scenario = Scenario({"n": 5})
    scenario.add(*some(2, "a", "b", "c"))
    for _ in range(effects):
        if scenario.under_way:
            scenario.do(0)
    scenario.crash()
    scenario.start()
    scenario.run()
    assert len(started(scenario, *"abc")) == 2


def test_groups_that_become_complete_join_those_that_wait() -> None:
    scenario = Scenario({"n": 20})
    many = some(3, *"abcdefgh")
    scenario.add(*many[:2])
    scenario.run()
    assert not started(scenario, *"abcdefgh")
    scenario.add(many[2])
    scenario.run()
    assert started(scenario, *"abcdefgh") == ["a", "b", "c"]
    scenario.add(*many[3:])
    scenario.run()
    assert started(scenario, *"abcdefgh") == list("abcdefgh")


def test_pods_are_evicted_for_as_many_children_as_are_needed() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    large, small = some(1, "a", "b")
    scenario.add(large.of(5).with_priority(10), small.with_priority(10))
    scenario.run_effects()
    assert evicted(scenario) == {"v"}
    end(scenario)
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 2)


def test_a_child_that_never_fits_does_not_keep_the_others_from_starving() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(gang("runs").of(8).running_for(100))
    scenario.run()
    never, fits = some(1, "a", "b")
    scenario.add(never.of(9).created(5), fits.of(6).created(5))
    scenario.pass_time(31)
    (kept,) = scenario.leader.cache.nominations.values()
    assert sum(kept.capacity.values()) == 6


def test_the_least_number_of_members_is_that_of_the_smallest_children() -> None:
    names = [f"default/{name}" for name in "abcde"]
    sizes = dict(zip("abcde", (1, 2, 7, 4, 5), strict=True))
    built = {name: gang(name).of(size).with_group(*names) for name, size in sizes.items()}
    inner = [built[name].in_composites(2, 2, root="", left="") for name in "abc"]
    outer = [built[name].in_composites(2, root="") for name in "de"]
    scenario = Scenario({"n": 2})
    scenario.add(*inner, *outer)
    scenario.run()
    known = scenario.leader.cache.gangs
    assert least_members(scenario.gang("a").group.gangs, known) == (1 + 2) + 4
    assert least_members([scenario.gang("d"), scenario.gang("e")], known) == 4 + 5
