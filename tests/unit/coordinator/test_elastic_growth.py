"""Growth of gangs that have their minimum: behind all others, in batches, and not soon after they were shrunk."""

from msgspec.structs import replace

from builders.core.actions import brought_back, end, evicted, full, places, pods_of, until_planned
from builders.core.entries import entries
from builders.core.objects import node
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Phase, Solve
from muster.coordinator.core.events import Rules
from muster.coordinator.core.gang.gang import SURPLUS
from muster.coordinator.core.queue.turns import ActiveGroups, Answer, Entry
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.slices import run_to_end
from muster.gangs.facts import PodFacts, RepairPolicy

WIDE = gang("a").of(4).needing(2)


def extra(built: CoreGang, *numbers: int, **said: int) -> list[PodFacts]:
    """Further pods that the gang's controller creates."""
    pod = built.pods()[0]
    return [
        replace(pod, uid=f"more/{built.name}-{number}", name=f"{built.name}-{number}", **said) for number in numbers
    ]


def shrunk(*, rules: Rules | None = None, priority: int = 10) -> Scenario:
    """A full cluster in which two of four pods of gang a were evicted for gang p, and were created again."""
    scenario = full(WIDE, nodes={"n": 4}, rules=rules or Rules())
    scenario.add(gang("p").of(2).with_priority(priority).created(20))
    scenario.run_effects()
    end(scenario)
    assert places(scenario, "ap") == {"a": 2, "p": 2}
    scenario.add_pods(*extra(WIDE, 10, 11))
    scenario.run_effects()
    return scenario


def capacity_is_added(scenario: Scenario, name: str = "m", cpu: int = 4) -> None:
    scenario.change(nodes=[node(name, cpu)])
    scenario.run_effects()


def hold_off_seconds(scenario: Scenario) -> float:
    """Length of the hold-off of gang a."""
    held_off = scenario.gang("a").growth.held_off
    return held_off.hold_off_seconds if held_off is not None else 0.0


def asked(scenario: Scenario) -> list[list[str]]:
    """Names of the groups of each solve request."""
    return [[group.id.rpartition("/")[2] for group in solve.groups] for solve in scenario.solves]


# -- behind all others


def test_surplus_of_a_high_priority_is_tried_after_a_gang_that_lacks_its_minimum() -> None:
    high = gang("high").of(3).needing(2).with_priority(100)
    scenario = full(high, nodes={"n": 3})
    scenario.add(gang("low").of(2).created(50))
    scenario.add_pods(*extra(high, 10))
    scenario.run_effects()
    scenario.solves.clear()
    capacity_is_added(scenario, cpu=2)
    assert places(scenario, ("high", "low")) == {"high": 3, "low": 2}
    assert asked(scenario)[0] in (["low", "high"], ["low"])


def test_surplus_gets_no_turn_of_its_namespace() -> None:
    active = ActiveGroups()
    for number in range(4):
        active.put(f"gang-{number}", (1, 0, number, "ml", f"gang-{number}"))
    active.put("surplus", (SURPLUS, -100, 0, "other", "surplus"))
    requests: list[list[str]] = []
    while active:
        requests.append([])

        def take(entry: Entry, _max_pods: int, request: list[str] = requests[-1]) -> Answer:
            active.discard(entry[1])
            request.append(entry[1])
            return Answer.TAKEN

        run_to_end(active.take(2, 100, take))
    assert requests == [["gang-0", "gang-1"], ["gang-2", "gang-3"], ["surplus"]]


def test_a_namespace_with_nothing_but_surplus_keeps_no_other_from_its_turn() -> None:
    active = ActiveGroups()
    active.put("surplus", (SURPLUS, 0, 0, "a", "surplus"))
    for number in range(3):
        active.put(f"high-{number}", (1, -9, number, "b", f"high-{number}"))
    active.put("low", (1, 0, 0, "c", "low"))
    taken: list[str] = []

    def take_one(entry: Entry, _max_pods: int) -> Answer:
        if len(taken) % 2:
            return Answer.FULL
        active.discard(entry[1])
        taken.append(entry[1])
        return Answer.TAKEN

    while len(active) > 1:
        run_to_end(active.take(2, 100, take_one))
        taken += [""] if len(taken) % 2 else []
    assert taken.index("low") <= 2, taken


def test_surplus_waits_for_the_members_of_an_equivalence_class() -> None:
    one = gang("one", "other").of(2).needing(1)
    scenario = Scenario({"n": 2})
    scenario.add(one)
    scenario.run()
    scenario.add(*(gang(f"g{number}").of(1).created(number) for number in range(8)))
    scenario.add_pods(*extra(one, 10))
    scenario.run()
    capacity_is_added(scenario, cpu=8)
    assert sum(scenario.bound(f"g{number}") for number in range(8)) == 8
    assert scenario.bound("one", "other") == 2


def test_surplus_does_not_starve() -> None:
    scenario = full(WIDE, gang("b").of(2), nodes={"n": 6})
    scenario.add_pods(*extra(WIDE, 10))
    scenario.pass_time(600)
    assert not any("CapacityReserved" in event.reason for report in scenario.reports for event in report.events)
    assert not scenario.leader.cache.nominations


def test_surplus_evicts_surplus_of_a_lower_priority() -> None:
    high = gang("high").of(2).needing(1).with_priority(10)
    scenario = full(WIDE, high, nodes={"n": 6})
    scenario.add_pods(*extra(high, 10))
    scenario.run_effects()
    assert evicted(scenario) == {"a"}
    assert sum(pod.deleting for pod in pods_of(scenario, "a")) == 1


def test_surplus_evicts_no_gang_that_would_lose_its_minimum() -> None:
    high = gang("high").of(2).needing(1).with_priority(10)
    scenario = full(gang("a").of(4), high, nodes={"n": 6})
    scenario.add_pods(*extra(high, 10))
    scenario.pass_time(100)
    assert not evicted(scenario)


def test_a_gang_that_falls_below_its_minimum_is_not_behind_others() -> None:
    high = gang("high").of(4).needing(4).with_priority(10)
    scenario = full(high, gang("a").of(4), nodes={"n": 8})
    gone = pods_of(scenario, "high")[:1]
    scenario.intrude(replace(gone[0], uid="foreign", name="foreign", gang=""), "n")
    scenario.change(remove_pods=[gone[0].uid])
    scenario.add_pods(*extra(high, 10))
    scenario.run_effects()
    assert evicted(scenario) == {"a"}


# -- batches


def test_pending_surplus_is_placed_together() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.add_pods(*extra(WIDE, 10, 11, 12))
    scenario.run_effects()
    capacity_is_added(scenario, cpu=2)
    scenario.pass_time(20)
    assert scenario.bound("a") == 4
    capacity_is_added(scenario, "o", cpu=1)
    assert scenario.bound("a") == 7


def test_after_the_time_of_a_batch_what_fits_is_placed() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.add_pods(*extra(WIDE, 10, 11, 12))
    scenario.run_effects()
    capacity_is_added(scenario, cpu=1)
    scenario.pass_time(29)
    assert scenario.bound("a") == 4
    scenario.pass_time(2)
    assert scenario.bound("a") == 5
    capacity_is_added(scenario, "o", cpu=1)
    assert scenario.bound("a") == 5, "the rest is the next batch"
    scenario.pass_time(31)
    assert scenario.bound("a") == 6


def test_pods_that_are_added_do_not_prolong_a_batch() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    capacity_is_added(scenario, cpu=1)
    for number in range(10, 16):
        scenario.add_pods(*extra(WIDE, number, number + 10))
        scenario.pass_time(6)
    assert scenario.bound("a") == 5


def test_i11_a_batch_that_ends_in_the_step_in_which_its_gang_is_gone() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.add_pods(*extra(WIDE, 10))
    scenario.run_effects()
    anew = replace(WIDE.gang_facts(), incarnation="anew")
    scenario.now += 31
    scenario.change(gangs=[anew], remove_pods=[pod.uid for pod in pods_of(scenario, "a")])
    scenario.run()
    found = entries(scenario.leader)
    assert (found["_reports._reported"], found["_reconciler._phases"]) == (1, 1)


def test_pods_that_are_added_leave_a_batch_the_capacity_that_is_freed_for_it() -> None:
    high = gang("high").of(2).needing(1).with_priority(10)
    scenario = full(WIDE, high, nodes={"n": 6})
    scenario.add_pods(*extra(high, 10))
    scenario.run_effects()
    assert evicted(scenario) == {"a"}
    scenario.add_pods(*extra(high, 11))
    scenario.run_effects()
    end(scenario)
    assert scenario.bound("high") == 3
    assert not any("in vain" in note for note in scenario.notes())


# -- hold-off


def test_a_gang_that_was_shrunk_does_not_grow_for_a_while() -> None:
    scenario = shrunk()
    capacity_is_added(scenario)
    assert scenario.bound("a") == 2
    assert scenario.gang("a").group.not_ready == "it was shrunk, and may grow again 10 s after that"
    scenario.pass_time(9)
    assert scenario.bound("a") == 2
    scenario.pass_time(2)
    assert scenario.bound("a") == 4


def test_the_hold_off_doubles_and_ends_after_a_quiet_time() -> None:
    scenario = shrunk(rules=Rules(max_growth_hold_off_seconds=35))
    offs = [hold_off_seconds(scenario)]
    for number, quiet in enumerate((40, 50, 60, 200)):
        capacity_is_added(scenario, f"m{number}", cpu=2)
        scenario.pass_time(quiet)
        assert scenario.bound("a") == 4
        scenario.add(gang(f"q{number}").of(2).with_priority(10).created(30 + number))
        scenario.run_effects()
        end(scenario)
        offs.append(hold_off_seconds(scenario))
        scenario.add_pods(*extra(WIDE, 20 + 2 * number, 21 + 2 * number))
        scenario.run_effects()
    assert offs == [10, 20, 35, 35, 10]


def test_a_gang_below_its_minimum_is_not_held_off() -> None:
    scenario = shrunk()
    scenario.change(remove_pods=[pod.uid for pod in pods_of(scenario, "a") if pod.seated][:1])
    scenario.run_effects()
    assert scenario.bound("a") >= 2


def test_the_next_leader_knows_the_hold_off() -> None:
    scenario = shrunk()
    scenario.pass_time(4)
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    capacity_is_added(scenario)
    scenario.pass_time(5)
    assert scenario.bound("a") == 2
    scenario.pass_time(2)
    assert scenario.bound("a") == 4


def test_a_plan_that_is_not_carried_out_causes_no_hold_off() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    preemptor = gang("p").of(1).with_priority(10)
    scenario.add(preemptor)
    until_planned(scenario)
    scenario.delete(preemptor)
    scenario.run_effects()
    assert scenario.bound("a") == 4
    scenario.add_pods(*extra(WIDE, 10))
    capacity_is_added(scenario)
    assert scenario.bound("a") == 5


def test_a_gang_that_was_evicted_whole_starts_at_once() -> None:
    scenario = shrunk()
    scenario.add(gang("q").of(2).with_priority(20).created(40))
    scenario.run_effects()
    end(scenario)
    capacity_is_added(scenario)
    scenario.add_pods(*brought_back(WIDE))
    scenario.run_effects()
    assert scenario.bound("a") >= 2


# -- edits of the minimum


def test_a_raised_minimum_evicts_nobody_and_the_gang_is_below_it() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.change(gangs=[WIDE.needing(6).gang_facts()])
    scenario.pass_time(1000)
    assert scenario.bound("a") == 4
    assert scenario.gang("a").phase is Phase.REPAIRING


def test_a_raised_minimum_is_the_reason_while_further_pods_do_not_exist() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.change(gangs=[WIDE.needing(6).gang_facts()])
    scenario.pass_time(10)
    runs = "gang default/a runs with 4 of 6 members, since its minimum was raised from 2 to 6"
    assert reason(scenario.gang("a")) == f"{runs}; it needs 2 more pods: create them, or lower the minimum"
    assert f"{runs}; it needs 2 more pods: create them, or lower the minimum" in scenario.notes()
    scenario.change(gangs=[replace(WIDE.needing(6).gang_facts(), creation_failure="Job a: no")])
    assert reason(scenario.gang("a")).endswith("the minimum; its controller cannot create more pods: Job a: no")
    scenario.change(gangs=[WIDE.needing(3).gang_facts()])
    assert reason(scenario.gang("a")) == ""


def test_pods_that_wait_below_a_raised_minimum_say_so_under_each_leader() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.change(gangs=[WIDE.needing(6).gang_facts()])
    runs = "gang default/a runs with 4 of 6 members, since its minimum was raised from 2 to 6"
    scenario.add_pods(*extra(WIDE, 10))
    scenario.run_effects()
    assert reason(scenario.gang("a")) == f"{runs}; 1 more of its pods cannot start: 0 of 1 members fit"
    scenario.add_pods(*extra(WIDE, 11))
    scenario.pass_time(10)
    assert reason(scenario.gang("a")).startswith(f"{runs}; 2 more of its pods cannot start: ")
    scenario.crash()
    scenario.start()
    scenario.pass_time(10)
    assert reason(scenario.gang("a")).startswith(f"{runs}; 2 more of its pods cannot start: ")


def test_a_gang_that_lost_members_is_not_one_whose_minimum_was_raised() -> None:
    scenario = full(gang("a").of(3), nodes={"n": 3})
    scenario.change(gangs=[gang("a").of(3).needing(5).gang_facts()])
    scenario.change(remove_pods=[pods_of(scenario, "a")[0].uid])
    scenario.pass_time(10)
    assert "was raised" not in reason(scenario.gang("a"))


def test_gangs_whose_minima_were_raised_are_not_repaired_even_if_several_wait() -> None:
    evicting = gang("b").of(2).needing(2).with_repair_policy(RepairPolicy.EVICT)
    scenario = full(WIDE, evicting, gang("c").of(2), nodes={"n": 8})
    for built in (WIDE, evicting, gang("c").of(2)):
        scenario.change(gangs=[built.needing(6).gang_facts()])
        scenario.add_pods(*extra(built, 10))
    scenario.pass_time(500)
    scenario.crash()
    scenario.start()
    scenario.pass_time(500)
    assert not evicted(scenario)
    assert places(scenario, "abc") == {"a": 4, "b": 2, "c": 2}


def test_a_gang_that_loses_members_after_its_minimum_was_raised_is_repaired() -> None:
    evicting = gang("b").of(3).with_repair_policy(RepairPolicy.EVICT)
    scenario = full(evicting, nodes={"n": 3})
    scenario.change(gangs=[evicting.needing(5).gang_facts()])
    lost = pods_of(scenario, "b")[0]
    scenario.change(remove_pods=[lost.uid])
    scenario.intrude(replace(lost, uid="foreign", name="foreign", gang=""), "n")
    scenario.add_pods(*extra(evicting, 10))
    scenario.pass_time(400)
    assert evicted(scenario) == {"b"}


def test_pending_members_below_a_raised_minimum_are_not_behind_others() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.change(gangs=[WIDE.needing(6).gang_facts()])
    scenario.add_pods(*extra(WIDE, 10))
    scenario.add(gang("later").of(1).created(50))
    scenario.run_effects()
    capacity_is_added(scenario, cpu=1)
    assert places(scenario, ("a", "later")) == {"a": 5, "later": 0}


def test_a_lowered_minimum_lets_a_waiting_gang_start_at_once() -> None:
    scenario = Scenario({"n": 4})
    waiting = gang("a").of(4).needing(6)
    scenario.add(waiting)
    scenario.run()
    scenario.change(gangs=[waiting.needing(4).gang_facts()])
    scenario.run_effects()
    assert scenario.bound("a") == 4


def test_a_lowered_minimum_makes_surplus_for_preemptors_at_once() -> None:
    victim = gang("a").of(4).with_budget("default/b")
    scenario = Scenario({"n": 4})
    scenario.set_budget("default/b", 1)
    scenario.add(victim)
    scenario.run()
    scenario.add(gang("p").of(1).with_priority(10))
    scenario.run()
    assert scenario.bound("p") == 0
    scenario.change(gangs=[victim.needing(3).gang_facts()])
    scenario.run_effects()
    assert places(scenario, "ap") == {"a": 3, "p": 1}


def test_a_solve_asks_for_all_pending_surplus() -> None:
    scenario = full(WIDE, nodes={"n": 4})
    scenario.add_pods(*extra(WIDE, 10, 11))
    solve = next(effect for effect in scenario.under_way if isinstance(effect, Solve))
    assert [each.minimum for each in solve.groups[0].gangs] == [2]
