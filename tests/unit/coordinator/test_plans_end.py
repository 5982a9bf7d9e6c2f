"""Ends of preemption plans: victims that do not leave, and freed capacity that others take (I13)."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from builders.core.actions import brought_back, end, evicted, full, places, pods_of
from builders.core.entries import entries
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Effect, Persist
from muster.coordinator.core.events import Rules, Seat
from muster.coordinator.core.machine import DEFAULTS
from muster.gangs.facts import PodPhase
from muster.gangs.solve import SolveOutcome, SolveResult

TIMEOUT = DEFAULTS.eviction_timeout_seconds
NODES = {f"n{number}": 4 for number in range(20)}


def crowd(rules: Rules = DEFAULTS) -> Scenario:
    """Twenty gangs of four, each on a node of its own."""
    return full(*(gang(f"v{number}").of(4).created(number) for number in range(20)), nodes=NODES, rules=rules)


def steal(scenario: Scenario) -> int:
    """Another scheduler takes the capacity of all terminating pods as they end. Returns how many ended."""
    ended = [pod for pod in scenario.cluster.pods.values() if pod.deleting]
    scenario.change(remove_pods=[pod.uid for pod in ended])
    for pod in ended:
        scenario.intrude(plain_pod(f"thief-{pod.name}"), pod.node)
    return len(ended)


def evictions_until(scenario: Scenario, seconds: float) -> int:
    """Lets time pass while another scheduler takes what becomes free. Returns the number of evicted pods."""
    count, until = 0, scenario.now + seconds
    while scenario.now < until:
        scenario.pass_time(0.5)
        count += steal(scenario)
    return count


# -- victims that do not leave


def test_i13_another_victim_is_chosen_when_one_does_not_leave() -> None:
    scenario = full(gang("old").of(4).created(1), gang("young").of(4).created(9), nodes={"a": 4, "b": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    scenario.run_effects()
    assert evicted(scenario) == {"young"}
    scenario.pass_time(TIMEOUT + 1)
    assert evicted(scenario) == {"young", "old"}
    scenario.change(remove_pods=[pod.uid for pod in scenario.cluster.pods.values() if "/old" in pod.gang])
    scenario.run_effects()
    assert scenario.bound("p") == 4
    assert any("on node b and 3 more have not ended for 300 s" in note for note in scenario.notes())
    assert scenario.claims_ended == [("nomination", "victims_remain")]


def test_i13_no_capacity_is_withheld_for_victims_that_do_not_leave() -> None:
    scenario = full(gang("v").of(4).needing(1), nodes={"n": 4})
    scenario.add(gang("p").of(3).with_priority(10))
    scenario.run_effects()
    first, *stuck = (pod for pod in scenario.cluster.pods.values() if pod.deleting)
    assert stuck
    scenario.change(remove_pods=[first.uid])
    scenario.add_pods(plain_pod("small"))
    scenario.pass_time(TIMEOUT - 1)
    assert not any(pod.node for pod in scenario.cluster.pods.values() if pod.name == "small")
    scenario.pass_time(2)
    assert scenario.cluster.pods["default/small"].node == "n"


def test_i13_victims_that_do_not_leave_end_a_plan_after_a_failover() -> None:
    scenario = full(gang("old").of(4).created(1), gang("young").of(4).created(9), nodes={"a": 4, "b": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    scenario.run_effects()
    scenario.pass_time(TIMEOUT / 2)
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    assert evicted(scenario) == {"young"}
    scenario.pass_time(TIMEOUT + 1)
    assert evicted(scenario) == {"young", "old"}


def test_i13_a_nomination_ends_when_placement_finds_no_answer() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    scenario.run_effects()
    honest = scenario.solver
    scenario.solver = lambda solve: (
        tuple(SolveResult(group.id, SolveOutcome.NOT_FOUND) for group in solve.groups)
        if any(group.id.endswith("/p") for group in solve.groups)
        else honest(solve)
    )
    scenario.finish_deletions()
    scenario.add_pods(plain_pod("small"))
    scenario.pass_time(TIMEOUT + 1)
    assert scenario.cluster.pods["default/small"].node == "n"
    assert not scenario.leader.cache.nominations


# -- capacity that others take


def test_i13_a_preemptor_whose_capacity_is_taken_pauses_before_it_evicts_again() -> None:
    scenario = crowd()
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    assert evictions_until(scenario, 55) == 4
    assert evictions_until(scenario, 60) == 4
    assert evictions_until(scenario, 60) == 0
    assert evictions_until(scenario, 65) == 4
    assert evictions_until(scenario, 3000) <= 4 * 4


def test_i13_the_preemptor_is_told_who_took_its_capacity() -> None:
    scenario = crowd()
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    evictions_until(scenario, 5)
    taken = [event for report in scenario.reports for event in report.events if event.reason == "CapacityTaken"]
    assert len(taken) == 1
    assert "taken by pod default/thief-v19-0 of scheduler default-scheduler on node n" in taken[0].note
    assert "nothing is evicted for it for 60 s" in taken[0].note
    assert scenario.claims_ended == [("nomination", "capacity_taken")]
    assert any("gang default/p cannot start" in note and "thief-v19-0" in note for note in scenario.notes())


def test_i13_a_new_potential_victim_does_not_end_the_pause() -> None:
    scenario = crowd()
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    assert evictions_until(scenario, 5) == 4
    scenario.change(nodes=[node("small", 3)])
    scenario.add(gang("late").of(3).created(60))
    assert evictions_until(scenario, 40) == 0
    assert scenario.bound("late") == 3


def test_i13_a_start_ends_the_pause() -> None:
    scenario = crowd()
    preemptor = gang("p").of(4).with_priority(10).created(50)
    scenario.add(preemptor)
    evictions_until(scenario, 5)
    scenario.change(nodes=[node("new", 4)])
    scenario.run_effects()
    assert scenario.bound("p") == 4
    assert scenario.gang("p").group.preemption.plans_in_vain == 0


def test_i13_refused_evictions_are_no_reason_to_pause() -> None:
    scenario = full(gang("v").of(2), nodes={"n": 2})
    for pod in scenario.cluster.pods.values():
        scenario.evict_failures[pod.uid] = 4
    scenario.add(gang("p").of(2).with_priority(10))
    scenario.pass_time(40)
    end(scenario)
    assert scenario.bound("p") == 2


def race(scenario: Scenario, intrudes: Callable[[Effect], Iterable[Seat]], seconds: float) -> int:
    """Lets time pass; victims end at once. Another scheduler takes the nodes of these seats before effects are carried
    out. Returns the number of evicted pods.
    """
    count, until = 0, scenario.now + seconds
    while scenario.now < until:
        while scenario.under_way:
            for number, seat in enumerate(intrudes(scenario.under_way[0])):
                scenario.intrude(plain_pod(f"thief-{scenario.now}-{number}"), seat.node)
            scenario.do(0)
        count += sum(pod.deleting for pod in scenario.cluster.pods.values())
        scenario.now += 0.5
        scenario.finish_deletions()
        scenario.wake()
    return count


def seats_in_permit(effect: Effect) -> Iterable[Seat]:
    """Seats of the preemptor that are being recorded."""
    records = effect.puts if isinstance(effect, Persist) else ()
    return [seat for record in records if record.gang.endswith("/p") for seat in record.seats]


def test_i13_capacity_taken_while_the_permit_is_written_counts_as_taken() -> None:
    scenario = crowd()
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    assert race(scenario, seats_in_permit, 55) == 4
    assert race(scenario, seats_in_permit, 60) == 4
    assert race(scenario, seats_in_permit, 60) == 0
    assert race(scenario, seats_in_permit, 3400) <= 4 * 4
    assert ("nomination", "capacity_taken") in scenario.claims_ended
    assert any("were lost at once; nothing is evicted for it for 60 s" in note for note in scenario.notes())


def test_i13_pods_that_the_kubelet_rejects_count_as_capacity_taken() -> None:
    """Another scheduler binds to the same node at the same time."""
    scenario = crowd()
    scenario.add(gang("p").of(4).with_priority(10).created(50))

    def rejected(_: Effect) -> Iterable[Seat]:
        running = [pod for pod in scenario.cluster.pods.values() if pod.gang.endswith("/p") and pod.node]
        if not running:
            return []
        new = [replace(pod, uid=f"{pod.uid}/", node="", phase=PodPhase.PENDING, started_seconds=0) for pod in running]
        scenario.change(pods=[replace(pod, phase=PodPhase.FAILED) for pod in running])
        scenario.change(remove_pods=[pod.uid for pod in running], pods=new)
        return [Seat(pod.uid, pod.namespace, pod.name, pod.class_id, pod.node) for pod in running]

    assert race(scenario, rejected, 3600) <= 4 * 7


def test_i13_later_pods_that_the_kubelet_rejects_count_as_capacity_taken() -> None:
    preemptor = gang("p").of(1).with_priority(10).created(1)
    victims = (gang(f"v{number}").of(4 if number else 3).needing(1).created(number + 2) for number in range(20))
    scenario = full(preemptor, *victims, nodes=NODES)
    scenario.add_pods(replace(preemptor.pods()[0], uid="late", name="late"))

    def rejected(_: Effect) -> Iterable[Seat]:
        running = [pod for pod in scenario.cluster.pods.values() if pod.name == "late" and pod.node]
        new = [replace(pod, uid=f"{pod.uid}/", node="", phase=PodPhase.PENDING, started_seconds=0) for pod in running]
        scenario.change(remove_pods=[pod.uid for pod in running], pods=new)
        return [Seat(pod.uid, pod.namespace, pod.name, pod.class_id, pod.node) for pod in running]

    assert 2 <= race(scenario, rejected, 3600) <= 7


def test_i13_a_preemptor_that_ran_for_a_while_does_not_pause() -> None:
    scenario = full(gang("v").of(4), gang("w").of(4), nodes={"a": 4, "b": 4})
    preemptor = gang("p").of(4).with_priority(10)
    scenario.add(preemptor)
    scenario.run_effects()
    end(scenario)
    assert scenario.bound("p") == 4
    scenario.pass_time(61)
    (node_name,) = {pod.node for pod in scenario.cluster.pods.values() if pod.gang.endswith("/p")}
    scenario.change(remove_nodes=[node_name], remove_pods=[pod.uid for pod in preemptor.pods()])
    scenario.add_pods(*brought_back(preemptor))
    scenario.run_effects()
    end(scenario)
    assert scenario.bound("p") == 4
    assert not scenario.claims_ended


def test_i13_victims_that_do_not_leave_are_not_followed_by_others_for_ever() -> None:
    scenario = crowd()
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    scenario.pass_time(TIMEOUT + 1)
    assert len(evicted(scenario)) == 2
    scenario.pass_time(TIMEOUT + 1)
    assert len(evicted(scenario)) == 2, "there is a pause"
    scenario.pass_time(60)
    assert len(evicted(scenario)) == 3
    scenario.pass_time(3600 - 2 * TIMEOUT - 62)
    assert len(evicted(scenario)) == 6
    scenario.pass_time(4 * 3600)
    assert len(evicted(scenario)) <= 11


# -- victims that cannot be evicted


def refusing(scenario: Scenario, name: str) -> None:
    """The API server refuses the evictions of a gang's pods, as by a webhook or a budget that Muster does not read."""
    scenario.evict_failures.update({pod.uid: 1_000_000 for pod in pods_of(scenario, name)})


def test_i13_another_victim_is_chosen_when_evictions_are_refused() -> None:
    scenario = full(gang("old").of(4).created(1), gang("young").of(4).created(9), nodes={"a": 4, "b": 4})
    refusing(scenario, "young")
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    scenario.pass_time(30)
    assert evicted(scenario) == {"old"}
    end(scenario)
    assert places(scenario, ["old", "young", "p"]) == {"old": 0, "young": 4, "p": 4}


def test_i13_plans_with_a_victim_that_cannot_be_evicted_pause_and_say_why() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    refusing(scenario, "v")
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    scenario.pass_time(3600)
    plans = [event for report in scenario.reports for event in report.events if event.reason == "Preempting"]
    assert 3 <= len(plans) <= 10
    assert any(
        "nothing is preempted for it: pods of gang default/v could not be evicted lately" in each
        for each in scenario.notes()
    )


def test_i8_a_victim_is_evicted_as_soon_as_it_is_a_potential_victim_again() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    refusing(scenario, "v")
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    scenario.pass_time(30)
    assert not evicted(scenario)
    scenario.evict_failures.clear()
    scenario.pass_time(61)
    assert evicted(scenario) == {"v"}
    end(scenario)
    assert scenario.bound("p") == 4


def test_i11_refused_evictions_are_forgotten_with_their_gang() -> None:
    scenario = Scenario({"n": 4})
    scenario.run()
    before = entries(scenario.leader)
    for number in range(5):
        victim, preemptor = gang(f"v{number}").of(4), gang(f"p{number}").of(4).with_priority(10)
        scenario.add(victim)
        scenario.run_effects()
        refusing(scenario, victim.name)
        scenario.add(preemptor)
        scenario.pass_time(30)
        scenario.delete(preemptor)
        scenario.delete(victim)
        scenario.run_effects()
    kept = entries(scenario.leader) - before
    assert not [path for path in kept if "running" in path]


# -- the limit of the cluster


def test_i13_evictions_per_hour_are_limited_in_the_cluster() -> None:
    scenario = crowd(Rules(evictions_per_hour=8))
    scenario.add(*(gang(f"p{number}").of(4).with_priority(10).created(50 + number) for number in range(20)))
    gone = 0
    for _ in range(4):
        scenario.pass_time(900)
        gone += sum(pod.deleting for pod in scenario.cluster.pods.values())
        scenario.finish_deletions()
        scenario.run_effects()
    assert 4 <= gone <= 8
    assert any("8 evictions per hour are used up" in note for note in scenario.notes())


def test_i13_a_new_leader_begins_without_evictions_left() -> None:
    scenario = crowd(Rules(evictions_per_hour=3600))
    scenario.crash()
    scenario.start()
    scenario.add(gang("p").of(4).with_priority(10).created(50))
    scenario.run_effects()
    assert not evicted(scenario)
    scenario.pass_time(3)
    assert len(evicted(scenario)) == 1


def test_i13_a_plan_larger_than_the_limit_is_carried_out_whole() -> None:
    scenario = full(gang("v").of(8), nodes={"n": 8}, rules=Rules(evictions_per_hour=2))
    scenario.add(gang("p").of(8).with_priority(10))
    scenario.pass_time(2000)
    assert sum(pod.deleting for pod in scenario.cluster.pods.values()) == 8
