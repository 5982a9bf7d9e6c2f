"""Of gangs under repair that hold what others need, the later one is evicted if that completes the earlier one."""

from msgspec.structs import replace

from builders.core.actions import end, until, until_planned
from builders.core.objects import node, plain_pod, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Evict
from muster.coordinator.core.events import Rules
from muster.coordinator.core.machine import DEFAULTS
from muster.gangs.facts import MatchPolicy, PodFacts, PodPhase, RepairPolicy

TIMEOUT = 301


def lose_node(scenario: Scenario, name: str) -> None:
    """A node is lost with its pods, which their owners recreate."""
    lost = [pod for pod in scenario.cluster.pods.values() if pod.node == name]
    again = [replace(pod, uid=f"{pod.uid}/new", node="", phase=PodPhase.PENDING) for pod in lost]
    scenario.change(remove_nodes=[name], remove_pods=[pod.uid for pod in lost], pods=again)


def blocked(*gangs: CoreGang, cpus: tuple[int, ...] = (2, 2), rules: Rules = DEFAULTS) -> Scenario:
    """Each of the gangs runs whole on two nodes of its own with so many cpus, and then loses the second one."""
    scenario = Scenario(rules=rules)
    scenario.change(trees=[racks(r0="a1 a2", r1="b1 b2")])
    for built, cpu in zip(gangs, cpus, strict=True):
        scenario.change(nodes=[node(f"{built.name}1", cpu), node(f"{built.name}2", cpu)])
        scenario.add(built)
        scenario.run()
    for built in gangs:
        lose_node(scenario, f"{built.name}2")
    scenario.run()
    return scenario


def bound(scenario: Scenario) -> tuple[int, int]:
    return scenario.bound("a"), scenario.bound("b")


A, B = gang("a").of(4).created(1), gang("b").of(4).created(2)


def test_i6_of_two_gangs_that_block_each_other_the_later_one_is_evicted() -> None:
    scenario = blocked(A, B)
    scenario.pass_time(TIMEOUT)
    assert bound(scenario) == (4, 0)
    assert (
        "the pod is evicted by the repair policy of its gang, which could not be repaired; gang default/a, ahead of it "
        "in the queue, could not be repaired either and needs its capacity"
    ) in scenario.notes()
    assert (
        "gang default/a is completed with the capacity of gangs under repair that are behind it in the queue: default/b"
    ) in scenario.notes()


def test_i6_the_later_one_is_evicted_once_the_repairs_of_both_have_timed_out() -> None:
    scenario = blocked(A, B)
    scenario.pass_time(TIMEOUT - 2)
    assert bound(scenario) == (2, 2)
    late = Scenario()
    late.change(nodes=[node("a1", 2), node("a2", 2), node("b1", 2), node("b2", 2)])
    late.add(A, B)
    late.run()
    lose_node(late, "a2")
    late.pass_time(200)
    lose_node(late, "b2")
    late.pass_time(298)
    assert bound(late) == (2, 2), "the repair of the later one has not timed out"
    late.pass_time(3)
    assert bound(late) == (4, 0)


def test_i9_a_gang_on_nodes_that_are_too_small_for_the_other_is_not_evicted() -> None:
    scenario = blocked(gang("a").of(2, cpu=2).created(1), gang("b").of(2).created(2), cpus=(2, 1))
    scenario.pass_time(3 * TIMEOUT)
    assert bound(scenario) == (1, 1)


def test_i9_a_gang_is_not_evicted_for_a_later_one() -> None:
    scenario = blocked(gang("a").of(2, cpu=4).created(1), B, cpus=(4, 2))
    scenario.pass_time(TIMEOUT)
    scenario.change(nodes=[node("small", 1)])  # the later one is tried again
    scenario.pass_time(5)
    assert bound(scenario) == (1, 3), "it would be completed with the capacity of the earlier one"


def test_i9_a_gang_outside_the_topology_domain_of_the_other_is_not_evicted() -> None:
    scenario = blocked(A.with_topology("rack: hard pack"), B)
    scenario.pass_time(3 * TIMEOUT)
    assert bound(scenario) == (2, 2)


def test_i9_a_gang_is_not_evicted_if_the_other_lacks_pods() -> None:
    scenario = blocked(A, B)
    (absent, _) = (pod for pod in scenario.cluster.pods.values() if pod.gang == A.id and not pod.node)
    scenario.change(remove_pods=[absent.uid])
    scenario.pass_time(3 * TIMEOUT)
    assert bound(scenario) == (2, 2)


def test_i9_of_several_later_gangs_only_those_are_evicted_that_help() -> None:
    sizes = {"a": 2, "b": 2, "c": 1}
    gangs = (gang(name).of(2, cpu=cpu).created(number) for number, (name, cpu) in enumerate(sizes.items()))
    scenario = blocked(*gangs, cpus=tuple(sizes.values()))
    scenario.pass_time(TIMEOUT)
    assert (*bound(scenario), scenario.bound("c")) == (2, 0, 1), "c has one cpu, and a lacks two"


def never_ran_whole(first: CoreGang, second: CoreGang) -> Scenario:
    """As `blocked`, but the first gang has never run whole: some of its pods never got their places."""
    scenario = blocked(first, second, cpus=(2, 1))
    scenario.gang("a").permit.fulfilled = False
    return scenario


def test_i6_a_gang_that_others_cannot_help_is_evicted_at_the_next_timeout() -> None:
    scenario = never_ran_whole(gang("a").of(2, cpu=2).created(1), gang("b").of(2).created(2))
    scenario.pass_time(TIMEOUT)
    assert bound(scenario) == (1, 1), "the other one may be evicted for it"
    scenario.pass_time(TIMEOUT)
    assert scenario.bound("a") == 0
    assert scenario.bound("b") == 2, "it gets the capacity of the other one"


def test_i13_priority_does_not_protect_a_later_gang_that_yields() -> None:
    """Both have one priority that admission gave to their pods: neither may preempt the other."""
    scenario = blocked(A.with_priority(5), B.with_priority(5))
    scenario.pass_time(TIMEOUT)
    assert bound(scenario) == (4, 0)


def test_i13_a_gang_that_never_preempts_is_completed_by_its_repair_too() -> None:
    scenario = blocked(A.never_preempting(), B)
    scenario.pass_time(TIMEOUT)
    assert bound(scenario) == (4, 0)


def test_i6_a_gang_that_waits_is_not_evicted_for_another() -> None:
    scenario = blocked(A, B.with_repair_policy(RepairPolicy.WAIT))
    scenario.pass_time(3 * TIMEOUT)
    assert bound(scenario) == (2, 2)


def test_i9_the_capacity_of_the_evicted_gang_is_kept_from_others() -> None:
    scenario = blocked(A, B)
    scenario.graceful = True
    scenario.pass_time(TIMEOUT)
    scenario.add_pods(plain_pod("rival", priority=100))
    end(scenario)
    assert bound(scenario) == (4, 0)


def test_i9_a_gang_that_is_complete_again_is_not_evicted() -> None:
    """The node comes back while the plan is written."""
    scenario = blocked(A, B)
    scenario.now += TIMEOUT
    scenario.wake()
    until_planned(scenario)
    scenario.change(gangs=[B.needing(2).gang_facts()])
    scenario.run_effects()
    assert bound(scenario) == (2, 2)
    assert scenario.gang("b").permitted


def test_i6_the_next_leader_continues_the_eviction() -> None:
    scenario = blocked(A, B)
    scenario.graceful = True
    scenario.now += TIMEOUT
    scenario.wake()
    until(scenario, Evict)
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    scenario.add_pods(plain_pod("rival", priority=100))
    end(scenario)
    assert bound(scenario) == (4, 0)


def only_waiting(built: CoreGang) -> CoreGang:
    return built.with_match_policy(MatchPolicy.ONLY_WAITING)


def with_owners(scenario: Scenario, *names: str) -> None:
    """Owners recreate the pods of these gangs that were evicted."""
    lost = [pod for name in names for pod in built_pods(name) if pod.uid not in scenario.cluster.pods]
    kept = {(pod.gang, pod.name) for pod in scenario.cluster.pods.values()}
    scenario.add_pods(*(replace(pod, uid=f"{pod.uid}/2") for pod in lost if (pod.gang, pod.name) not in kept))
    scenario.run_effects()


def built_pods(name: str) -> list[PodFacts]:
    return {"a": A, "b": B}[name].pods()


def test_i6_blocked_gangs_of_which_only_waiting_pods_count_start_anew() -> None:
    scenario = blocked(only_waiting(A), only_waiting(B))
    scenario.pass_time(TIMEOUT - 2)
    assert bound(scenario) == (2, 2)
    scenario.pass_time(3)
    with_owners(scenario, "a", "b")
    assert bound(scenario) == (4, 0)
    assert any("cannot join those that run, by its match policy only-waiting" in note for note in scenario.notes())


def test_i6_it_starts_anew_when_all_pods_exist_if_only_waiting_ones_count() -> None:
    scenario = blocked(only_waiting(A), B)
    (absent, _) = (pod for pod in scenario.cluster.pods.values() if pod.gang == A.id and not pod.node)
    scenario.change(remove_pods=[absent.uid])
    scenario.pass_time(TIMEOUT)
    assert bound(scenario) == (2, 2), "evicted, it would lack a pod"
    scenario.add_pods(replace(absent, uid="again"))
    scenario.pass_time(TIMEOUT)
    with_owners(scenario, "a")
    assert bound(scenario)[0] in (0, 4)


def test_i6_pods_that_nobody_recreates_stay_if_only_waiting_ones_count() -> None:
    scenario = blocked(only_waiting(A), only_waiting(B))
    scenario.change(pods=[replace(pod, uncontrolled=True) for pod in scenario.cluster.pods.values() if pod.node])
    scenario.pass_time(3 * TIMEOUT)
    assert bound(scenario) == (2, 2)


def test_i6_a_gang_that_waits_is_kept_if_only_waiting_pods_count() -> None:
    scenario = blocked(*(only_waiting(each).with_repair_policy(RepairPolicy.WAIT) for each in (A, B)))
    scenario.pass_time(3 * TIMEOUT)
    assert bound(scenario) == (2, 2)


def test_evictions_by_repair_policies_do_not_count_as_preemption() -> None:
    scenario = blocked(A, B, rules=Rules(evictions_per_hour=1))
    scenario.pass_time(TIMEOUT)
    assert bound(scenario) == (4, 0)
