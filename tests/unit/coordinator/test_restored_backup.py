"""The API server's etcd is restored from an older backup: bound pods are pending again, deleted ones are back."""

from msgspec.structs import replace

from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Evict, Phase
from muster.coordinator.core.events import BindResults, RecordState, Snapshot, ViewLost
from muster.coordinator.core.permits.binding import CONFIRMATION_SECONDS
from muster.gangs.facts import PodPhase, StaticClaim, StaticVolume


def binds(scenario: Scenario) -> int:
    """Number of binds sent so far."""
    return sum(len(bind.seats) for bind in scenario.binds)


def test_i6_a_gang_whose_binds_are_undone_starts_again_whole() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(4))
    backup = scenario.cluster.copy()
    scenario.run()
    assert scenario.bound("a") == 4
    scenario.restore(backup)
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.pass_time(CONFIRMATION_SECONDS)
    assert scenario.bound("a") == 4
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert scenario.leader.next_wake() is None


def test_i6_undone_members_of_a_gang_that_runs_in_part_are_placed_again() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(4))
    backup = scenario.cluster.copy()
    scenario.run()
    for pod in [pod for pod in scenario.cluster.pods.values() if pod.name in ("a-0", "a-1")]:
        backup.put_pod(pod)
    scenario.restore(backup)
    scenario.pass_time(CONFIRMATION_SECONDS)
    assert scenario.bound("a") == 4
    assert scenario.etcd["test/default/a"].state is RecordState.SATISFIED


def test_i6_a_bind_that_is_acknowledged_and_never_observed_is_repeated() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(2))
    backup = scenario.cluster.copy()
    for cpu in (1, 2, 3):
        scenario.change(nodes=[node("seen-after-the-backup", cpu)])
    scenario.do(0)  # the solve
    scenario.do(0)  # the permit
    call = scenario.only(Bind)
    scenario.under_way.clear()
    scenario.lagging = True
    results = BindResults(scenario.bind_all(call))
    scenario.lagging = False
    scenario.restore(backup)
    scenario.tell(results)
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.pass_time(CONFIRMATION_SECONDS)
    assert scenario.bound("a") == 2


def test_i3_an_acknowledged_bind_that_is_observed_late_keeps_its_place() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(4))
    scenario.do(0)  # the solve
    scenario.do(0)  # the permit
    scenario.lagging = True
    scenario.run()
    scenario.pass_time(10 * CONFIRMATION_SECONDS)
    assert len(scenario.leader.cache.gangs["test/default/a"].acknowledged) == 4
    scenario.deliver()
    assert len(scenario.leader.cache.gangs["test/default/a"].bound) == 4


def test_i1_a_gang_that_is_incomplete_in_the_backup_does_not_start_in_part() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").of(4)
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:3])
    backup = scenario.cluster.copy()
    scenario.change(pods=a.pods()[3:])
    scenario.run()
    assert scenario.bound("a") == 4
    scenario.restore(backup)
    scenario.pass_time(2 * CONFIRMATION_SECONDS)
    assert scenario.bound("a") == 0
    assert scenario.gang("a").phase is Phase.GATHERING
    scenario.change(pods=[replace(a.pods()[3], uid="new")])
    scenario.run()
    assert scenario.bound("a") == 4


def test_i3_places_of_undone_binds_are_given_up_where_deleted_pods_live_again() -> None:
    scenario = Scenario({"n2": 2, "m2": 2})
    former = replace(plain_pod("former", 2), node="n2", phase=PodPhase.RUNNING)
    scenario.add(gang("a").of(4))
    scenario.change(pods=[former])
    scenario.run()
    backup = scenario.cluster.copy()
    scenario.change(remove_pods=[former.uid])
    scenario.run()
    assert scenario.bound("a") == 4
    scenario.restore(backup)
    assert not scenario.leader.cache.ledger.reserved, "the gang would keep two places and start in part"
    scenario.pass_time(2 * CONFIRMATION_SECONDS)
    assert scenario.bound("a") == 0
    scenario.change(remove_pods=[former.uid])
    scenario.run()
    assert scenario.bound("a") == 4


def test_i6_places_on_nodes_that_the_backup_does_not_have_are_given_up() -> None:
    scenario = Scenario({"n2": 2})
    scenario.add(gang("a").of(4))
    backup = scenario.cluster.copy()
    scenario.change(nodes=[replace(scenario.cluster.nodes["n2"], name="added")])
    scenario.run()
    assert scenario.bound("a") == 4
    scenario.restore(backup)
    scenario.pass_time(CONFIRMATION_SECONDS)
    assert scenario.bound("a") == 0
    assert not scenario.leader.cache.ledger.reserved


def test_i3_a_snapshot_of_a_replica_that_is_behind_frees_no_capacity() -> None:
    scenario = Scenario({"n2": 2})
    scenario.add(gang("a").of(2))
    old = scenario.cluster.whole()
    scenario.run()
    before = binds(scenario)
    scenario.add(gang("b").of(2))
    scenario.tell(ViewLost("another replica"), Snapshot(old))
    scenario.pass_time(CONFIRMATION_SECONDS / 2)
    assert len(scenario.leader.cache.ledger.reserved) == 2
    scenario.blink()
    scenario.pass_time(2 * CONFIRMATION_SECONDS)
    assert (scenario.bound("a"), scenario.bound("b"), binds(scenario)) == (2, 0, before)


def test_i6_binds_are_not_given_up_while_the_cluster_is_not_observed() -> None:
    scenario = Scenario({"n2": 2})
    scenario.add(gang("a").of(2))
    backup = scenario.cluster.copy()
    scenario.run()
    scenario.restore(backup)
    scenario.tell(ViewLost("no replica"))
    scenario.pass_time(10 * CONFIRMATION_SECONDS)
    assert len(scenario.leader.cache.gangs["test/default/a"].acknowledged) == 2
    scenario.blink()
    scenario.run()
    assert scenario.bound("a") == 2


def test_i10_reasons_and_stages_are_reported_again_after_a_restore() -> None:
    scenario = Scenario({"n2": 2})
    scenario.add(gang("a").of(3))
    backup = scenario.cluster.copy()
    scenario.pass_time(10)
    notes, stages = scenario.notes().count(scenario.notes()[-1]), len(scenario.stages["a"])
    scenario.pass_time(10)
    assert scenario.notes().count(scenario.notes()[-1]) == notes
    scenario.restore(backup)
    scenario.pass_time(10)
    assert scenario.notes().count(scenario.notes()[-1]) == 2 * notes
    assert len(scenario.stages["a"]) == stages + 1
    scenario.blink()
    scenario.pass_time(10)
    assert scenario.notes().count(scenario.notes()[-1]) == 2 * notes


def test_i9_a_victim_that_is_pending_in_the_backup_is_not_evicted() -> None:
    scenario = Scenario({"n2": 2})
    scenario.add(gang("low").of(2))
    backup = scenario.cluster.copy()
    scenario.run()
    scenario.add(gang("high").of(2).with_priority(5))
    while not any(isinstance(effect, Evict) for effect in scenario.under_way):
        scenario.do(0)
    scenario.under_way.clear()
    high = gang("high").of(2).with_priority(5)
    backup.gangs[high.id] = high.gang_facts()
    for pod in high.pods():
        backup.put_pod(pod)
    scenario.restore(backup)
    assert not scenario.gang("low").eviction.pods
    scenario.pass_time(2 * CONFIRMATION_SECONDS)
    assert (scenario.bound("low"), scenario.bound("high")) == (0, 2)
    assert len(scenario.cluster.pods) == 4


def test_i3_volumes_of_undone_binds_can_be_chosen_again() -> None:
    scenario = Scenario({"n2": 2})
    (pod,) = gang("a").of(1).pods()
    scenario.change(
        gangs=[gang("a").of(1).gang_facts()],
        pods=[replace(pod, claims=("data",))],
        static_claims=[StaticClaim("default/data", "local")],
        static_volumes=[StaticVolume("volume", "local")],
    )
    backup = scenario.cluster.copy()
    scenario.run()
    assert scenario.bound("a") == 1
    scenario.restore(backup)
    scenario.pass_time(CONFIRMATION_SECONDS)
    assert scenario.bound("a") == 1
    assert scenario.binds[-1].seats[0].volumes == (("data", "volume"),)


def test_i7_a_gang_found_infeasible_in_what_was_undone_is_tried_again() -> None:
    scenario = Scenario({"n2": 2})
    for _ in range(4):
        scenario.change()
    scenario.add(gang("a").of(2))
    backup = scenario.cluster.copy()
    scenario.lagging = True
    scenario.change(nodes=[replace(scenario.cluster.nodes["n2"], unschedulable=True)])
    scenario.do(0)  # placement knows of it before the coordinator does
    scenario.lagging = False
    scenario.restore(backup)
    scenario.run()
    assert scenario.bound("a") == 2


def test_i6_undone_timeout_marks_are_written_again() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(5).non_strict(waiting_time_seconds=3))
    scenario.run()
    backup = scenario.cluster.copy()
    scenario.lagging = True
    scenario.pass_time(4)
    assert all(pod.timed_out for pod in scenario.cluster.pods.values())
    scenario.lagging = False
    scenario.restore(backup)
    scenario.pass_time(4)
    assert all(pod.timed_out and not pod.nominated_node for pod in scenario.cluster.pods.values())
    assert len(scenario.gang("a").hold.marked) == 5


def test_i7_undone_removals_of_timeout_marks_are_repeated() -> None:
    scenario = Scenario({"n4": 4})
    built = gang("a").of(5).non_strict(waiting_time_seconds=3)
    scenario.add(built)
    scenario.pass_time(4)
    scenario.change(gangs=[built.needing(4).gang_facts()])
    backup = scenario.cluster.copy()
    scenario.lagging = True
    scenario.run_effects()
    assert not any(pod.timed_out for pod in scenario.cluster.pods.values())
    scenario.lagging = False
    scenario.restore(backup)
    scenario.run()
    assert scenario.bound("a") == 4
