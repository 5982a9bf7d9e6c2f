"""Growth of gangs with subgroups: each subgroup has its own hold-off and its own batches."""

from collections import Counter

from msgspec.structs import replace

from builders.core.actions import end, full, pods_of
from builders.core.objects import node
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Phase
from muster.coordinator.core.report.waits import Wait
from muster.gangs.facts import MatchPolicy, PodFacts, PodPhase

PARTS = (
    gang("a").needing(2).in_subgroups(2, 2, 2, minimum=1, rack=False).with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
)
"""Three subgroups of two pods, of which one must run."""


def again(*pods: PodFacts, **changes: str) -> list[PodFacts]:
    """Pods that their controller creates in place of these."""
    return [
        replace(pod, uid=f"{pod.uid}-again", node="", phase=PodPhase.PENDING, deleting=False, **changes) for pod in pods
    ]


def more(built: CoreGang, part: int, *numbers: int) -> list[PodFacts]:
    """Further pods of one subgroup."""
    pod = next(pod for pod in built.pods() if pod.label_set == f"subgroup:{part}")
    return [replace(pod, uid=f"more/{part}-{number}", name=f"{built.name}-{part}-{number}") for number in numbers]


def add(scenario: Scenario, name: str, cpu: int) -> None:
    """Add a node."""
    scenario.change(nodes=[node(name, cpu)])
    scenario.run_effects()


def runs(scenario: Scenario) -> Counter[str]:
    """Pods of gang a that run, by subgroup."""
    return Counter(pod.label_set for pod in pods_of(scenario, "a") if pod.node and not pod.deleting)


def shrunk(built: CoreGang = PARTS) -> Scenario:
    """A full cluster in which subgroup 2 was evicted, and its pods were created again."""
    scenario = full(built, nodes={"n": built.size})
    lost = [pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:2"]
    scenario.add(gang("p").of(2).with_priority(10).created(20))
    scenario.run_effects()
    end(scenario)
    assert runs(scenario) == {"subgroup:0": 2, "subgroup:1": 2}
    scenario.add_pods(*again(*lost))
    scenario.run_effects()
    return scenario


# -- hold-offs


def test_a_subgroup_that_was_shrunk_does_not_grow_for_a_while_and_says_so() -> None:
    scenario = shrunk()
    add(scenario, "m", 4)
    scenario.pass_time(8)
    assert runs(scenario) == {"subgroup:0": 2, "subgroup:1": 2}
    why = 'its subgroup "parts/2" was shrunk, and may grow again 10 s after that'
    assert scenario.gang("a").group.not_ready == why
    assert scenario.gang("a").group.not_ready_wait is Wait.SHRUNK
    scenario.pass_time(3)
    assert runs(scenario) == {"subgroup:0": 2, "subgroup:1": 2, "subgroup:2": 2}


def test_a_member_that_fails_in_another_subgroup_is_replaced_meanwhile() -> None:
    scenario = shrunk()
    failed = next(pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:1")
    scenario.change(remove_pods=[failed.uid], pods=again(failed))
    scenario.run_effects()
    assert runs(scenario) == {"subgroup:0": 2, "subgroup:1": 2}


def test_another_subgroup_grows_meanwhile() -> None:
    scenario = shrunk()
    add(scenario, "m", 4)
    scenario.add_pods(*more(PARTS, 0, 10, 11))
    scenario.run_effects()
    assert runs(scenario) == {"subgroup:0": 4, "subgroup:1": 2}


def test_members_that_do_not_grow_yet_do_not_ask_for_nodes() -> None:
    scenario = shrunk(PARTS.needing(3))
    scenario.add_pods(*more(PARTS, 0, 10, 11))
    scenario.pass_time(2)
    told: dict[str, str] = {}
    for report in scenario.reports:
        told |= {each.uid: each.reason for each in report.conditions if each.uid in scenario.cluster.pods}
    waiting = {pod.uid: pod.label_set for pod in pods_of(scenario, "a") if not pod.node}
    assert {told[uid] for uid, part in waiting.items() if part == "subgroup:2"} == {"GangShrunk"}
    assert {told[uid] for uid, part in waiting.items() if part == "subgroup:0"} == {"Unschedulable"}


def test_a_subgroup_that_runs_and_lacks_members_is_completed_at_once() -> None:
    built = gang("a").needing(2).in_subgroups(3, 2, size=2, minimum=1, rack=False)
    scenario = full(built.with_match_policy(MatchPolicy.WAITING_AND_RUNNING), nodes={"n": 5})
    [lost] = {pod.uid: pod for pod in pods_of(scenario, "a")}.keys() - _kept(scenario)
    old = scenario.cluster.pods.get(lost)
    assert old is None or old.label_set == "subgroup:0"
    failed = next(pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:0" and pod.node)
    end(scenario)
    scenario.change(remove_pods=[failed.uid], pods=again(failed))
    scenario.run_effects()
    assert runs(scenario) == {"subgroup:0": 2, "subgroup:1": 2}


def _kept(scenario: Scenario) -> set[str]:
    """Uids of the pods of gang a that stay when a gang of a higher priority takes one."""
    scenario.add(gang("p").of(1).with_priority(10).created(20))
    scenario.run_effects()
    return {pod.uid for pod in pods_of(scenario, "a") if not pod.deleting}


def test_the_hold_off_of_each_subgroup_doubles_on_its_own() -> None:
    scenario = shrunk()
    add(scenario, "m", 2)
    scenario.pass_time(12)
    lost = [pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:2"]
    assert len(runs(scenario)) == 3
    scenario.add(gang("q").of(2).with_priority(10).created(30))
    scenario.run_effects()
    end(scenario)
    scenario.add_pods(*again(*lost))
    add(scenario, "o", 4)
    scenario.pass_time(18)
    assert "subgroup:2" not in runs(scenario)
    scenario.pass_time(3)
    assert runs(scenario)["subgroup:2"] == 2


def test_the_next_leader_knows_the_hold_off_of_a_subgroup() -> None:
    scenario = shrunk()
    scenario.pass_time(4)
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    add(scenario, "m", 2)
    scenario.pass_time(4)
    assert "subgroup:2" not in runs(scenario)
    scenario.pass_time(3)
    assert runs(scenario)["subgroup:2"] == 2


def test_a_hold_off_is_forgotten_after_a_quiet_time() -> None:
    scenario = shrunk()
    add(scenario, "m", 2)
    scenario.pass_time(700)
    assert runs(scenario)["subgroup:2"] == 2
    scenario.add_pods(*more(PARTS, 0, 10))
    scenario.run_effects()
    assert set(scenario.gang("a").growth.parts) == {"test/default/a#parts/0"}


# -- batches


def test_the_surplus_of_a_subgroup_is_placed_together() -> None:
    scenario = full(PARTS, nodes={"n": 6})
    scenario.add_pods(*more(PARTS, 0, 10, 11, 12))
    scenario.run_effects()
    add(scenario, "m", 1)
    scenario.pass_time(28)
    assert runs(scenario)["subgroup:0"] == 2
    scenario.pass_time(3)
    assert runs(scenario)["subgroup:0"] == 3, "the batch is over: what fits is placed"
    add(scenario, "o", 1)
    scenario.pass_time(28)
    assert runs(scenario)["subgroup:0"] == 3, "the rest is the next batch"
    scenario.pass_time(3)
    assert runs(scenario)["subgroup:0"] == 4


def test_the_batch_of_one_subgroup_does_not_wait_for_that_of_another() -> None:
    scenario = full(PARTS, nodes={"n": 6})
    scenario.add_pods(*more(PARTS, 0, 10, 11, 12), *more(PARTS, 1, 10))
    scenario.run_effects()
    add(scenario, "m", 2)
    assert runs(scenario) == {"subgroup:0": 2, "subgroup:1": 3, "subgroup:2": 2}


def test_members_that_a_subgroup_lacks_are_no_batch() -> None:
    scenario = full(PARTS, nodes={"n": 6})
    failed = next(pod for pod in pods_of(scenario, "a") if pod.label_set == "subgroup:1")
    scenario.change(remove_pods=[failed.uid], pods=[*again(failed), *more(PARTS, 1, 10, 11)])
    scenario.run_effects()
    assert runs(scenario) == {"subgroup:0": 2, "subgroup:1": 2, "subgroup:2": 2}
    assert scenario.gang("a").phase is Phase.SATISFIED


def test_members_in_no_subgroup_are_a_batch_of_their_own() -> None:
    built = PARTS.of(7)
    scenario = full(built, nodes={"n": 7})
    alone = next(pod for pod in built.pods() if not pod.label_set)
    scenario.add_pods(*(replace(alone, uid=f"more/{number}", name=f"more-{number}") for number in range(2)))
    scenario.run_effects()
    add(scenario, "m", 1)
    scenario.pass_time(20)
    assert runs(scenario)[""] == 1
    scenario.pass_time(12)
    assert runs(scenario)[""] == 2
