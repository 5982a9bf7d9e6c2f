"""Gangs of higher priority take the room of others: of as few gangs as can be, and only for a start that is certain."""

import contextlib

import pytest

from builders.e2e.faults import EVICTIONS
from builders.e2e.solve_relay import removes
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


ROUNDS = 10
MAIN, ASIDE = "main", "aside"


def ranked(name: str, priority: int) -> Workload:
    """A gang that uses the main nodes."""
    return gang(name).with_priority(priority).on_nodes(pool=MAIN)


def urgent(name: str) -> Workload:
    return ranked(name, 1000)


def running(name: str) -> Workload:
    return ranked(name, 0)


def aside(name: str) -> Workload:
    """A pod that uses other nodes."""
    return plain(name).with_priority(0).on_nodes(pool=ASIDE)


async def nothing_was_evicted(scene: Scene, before: set[str], *workloads: Workload) -> None:
    """Something that comes later has been dealt with, and all pods are still there."""
    fence = aside("fence")
    await scene.nodes(1, pool=ASIDE)
    await scene.create(fence)
    await scene.bound(fence)
    assert scene.uids(*workloads) == before


async def test_g43_one_whole_gang_goes_rather_than_a_member_of_each_of_four_i9(scene: Scene) -> None:
    await scene.nodes(4, 4, 4, 4, pool=MAIN)
    whole, others = running("whole").of(4), [running(f"other-{number}").of(3) for number in range(4)]
    for each in (whole, *others):
        await scene.create(each)
        await scene.bound(each)
    spared = scene.uids(*others)
    preemptor = urgent("urgent").of(4)
    await scene.create(preemptor)
    await scene.bound(preemptor)
    assert scene.uids(whole) == set()
    assert scene.uids(*others) == spared
    await scene.event(whole, "urgent")
    await scene.satisfied(preemptor)


async def test_a_waiting_gang_of_higher_priority_gets_what_it_lacks_from_others(scene: Scene) -> None:
    await scene.nodes(6, pool=MAIN)
    victim = running("victim").of(4)
    await scene.create(victim)
    await scene.bound(victim)
    preemptor = urgent("urgent").of(6).annotated(mode="NonStrict", waiting_time="600s")
    await scene.create(preemptor)
    await scene.bound(preemptor)
    assert scene.uids(victim) == set()


async def test_a_group_in_two_namespaces_preempts_as_one_i1_i9(scene: Scene) -> None:
    await scene.nodes(4, 4, pool=MAIN)
    victims = [running(f"victim-{number}").of(4) for number in range(2)]
    await scene.create(*victims)
    await scene.bound(*victims)
    spaces = [scene.namespace(name) for name in "ab"]
    names = [f"{space}/half" for space in spaces]
    halves = [urgent("half").of(4).in_namespace(space).with_group(*names) for space in spaces]
    await scene.create(halves[0])
    await scene.waits(halves[0], "does not exist")
    assert len(scene.uids(*victims)) == 8, "half a group harms nobody"
    await scene.create(halves[1])
    await scene.bound(*halves)
    assert scene.uids(*victims) == set()


async def test_g44_equals_and_betters_are_never_evicted_i9(scene: Scene) -> None:
    await scene.nodes(4, pool=MAIN)
    equal, better = urgent("equal").of(2), ranked("better", 2000).of(2)
    await scene.create(equal, better)
    await scene.bound(equal, better)
    before = scene.uids(equal, better)
    preemptor = urgent("urgent").of(2)
    await scene.create(preemptor)
    await scene.waits(preemptor, "members fit")
    await nothing_was_evicted(scene, before, equal, better)


async def test_g44_a_gang_that_would_not_fit_into_the_room_of_all_victims_evicts_none_i9(scene: Scene) -> None:
    await scene.nodes(4, 4, pool=MAIN)
    victim, safe = running("victim").of(4), ranked("safe", 5000).of(4)
    await scene.create(victim, safe)
    await scene.bound(victim, safe)
    before = scene.uids(victim, safe)
    preemptor = urgent("urgent").of(5)
    await scene.create(preemptor)
    await scene.waits(preemptor, "0 of 5 members fit")
    await nothing_was_evicted(scene, before, victim, safe)


async def test_g45_members_above_the_minimum_go_first_and_the_gang_goes_on(scene: Scene) -> None:
    await scene.nodes(6, pool=MAIN)
    victim, preemptor = running("victim").of(6).needing(4), urgent("urgent").of(2)
    await scene.create(victim)
    await scene.bound(victim)
    before = scene.uids(victim)
    await scene.create(preemptor)
    await scene.bound(preemptor)
    assert len(scene.bound_pods(victim)) == 4
    assert scene.uids(victim) < before
    await scene.satisfied(victim)


async def test_g46_the_preemptor_is_deleted_before_the_answer_with_the_victims_comes_i9(scene: Scene) -> None:
    await scene.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    await scene.create(victim)
    await scene.bound(victim)
    before = scene.uids(victim)
    solves = scene.cluster.solves
    with solves.holding(removes) as held:
        await scene.create(preemptor)
        await held.wait()
        await scene.minimum(preemptor, 4)  # it is known, so that it can be forgotten
        await scene.delete(preemptor)
        await scene.forgotten(preemptor)
    await nothing_was_evicted(scene, before, victim)


async def test_g46_the_preemptor_is_deleted_while_the_plan_is_written_i9(scene: Scene) -> None:
    await scene.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    await scene.create(victim)
    await scene.bound(victim)
    before = scene.uids(victim)
    await scene.recorded(victim)
    solves = scene.cluster.solves
    with contextlib.ExitStack() as etcd:
        with solves.holding(removes) as held:
            await scene.create(preemptor)
            await held.wait()
            await scene.minimum(preemptor, 4)
            etcd.enter_context(scene.cluster.frozen("etcd"))
        await scene.delete(preemptor)
        await scene.forgotten(preemptor)
    await nothing_was_evicted(scene, before, victim)


async def test_preemption_policy_never_is_respected_i9_i10(scene: Scene) -> None:
    await scene.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4).harming_nobody()
    await scene.create(victim)
    await scene.bound(victim)
    before = scene.uids(victim)
    await scene.create(preemptor)
    await scene.waits(preemptor, "0 of 4 members fit")
    await nothing_was_evicted(scene, before, victim)
    await scene.delete(victim)
    await scene.bound(preemptor)


async def test_whom_a_disruption_budget_protects_is_spared_i9(scene: Scene) -> None:
    scene.cluster.api_server.needs_controllers()
    await scene.nodes(8, pool=MAIN)
    protected, other = (running(name).of(4).labelled(app=name) for name in ("protected", "other"))
    await scene.create(other)
    await scene.bound(other)
    await scene.create(protected)  # younger: without the budget it would go first
    await scene.bound(protected)
    await scene.budget(protected, least=4)
    before = scene.uids(protected)
    preemptor = urgent("urgent").of(4)
    await scene.create(preemptor)
    await scene.bound(preemptor)
    assert scene.uids(protected) == before
    assert scene.uids(other) == set()


async def test_the_room_of_victims_is_kept_for_the_preemptor_and_others_go_on_being_scheduled(scene: Scene) -> None:
    await scene.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    thief, elsewhere = plain("thief").with_priority(0).on_nodes(pool=MAIN), aside("elsewhere")
    await scene.create(victim)
    await scene.bound(victim)
    with scene.cluster.faults.hold(EVICTIONS, let_pass=2) as held:
        await scene.create(preemptor)
        await held.until(2)
        await scene.cluster.until(lambda: len(scene.uids(victim)) == 2, "two victims are gone")
        await scene.create(thief)
        await scene.waits(thief)
        await scene.nodes(1, pool=ASIDE)
        await scene.create(elsewhere)
        await scene.bound(elsewhere)
        assert scene.bound_pods(thief) == scene.bound_pods(preemptor) == {}
        answer = await scene.cluster.explain(scene.here(preemptor).id)
        assert list(answer.evicted_for_it) == [scene.here(victim).id]
        assert answer.nodes_with_kept_room == 1
        held.release()
    await scene.bound(preemptor)
    assert scene.bound_pods(thief) == {}


async def test_a_coordinator_killed_while_victims_go_finishes_what_was_planned_i5_i9(scene: Scene) -> None:
    await scene.nodes(4, pool=MAIN)
    victim, preemptor, thief = running("victim").of(4), urgent("urgent").of(4), plain("thief").with_priority(0)
    await scene.create(victim)
    await scene.bound(victim)
    with scene.cluster.faults.hold(EVICTIONS, let_pass=2) as held:
        await scene.create(preemptor)
        await held.until(2)
        await scene.cluster.stack.kill("coordinator")
        await scene.create(thief)
        held.drop()
        await scene.cluster.stack.start(["coordinator"])
    await scene.bound(preemptor)
    assert scene.uids(victim) == set()
    assert scene.bound_pods(thief) == {}


async def test_victims_that_a_job_brings_back_at_once_never_take_the_room_and_nobody_else_goes_i9(scene: Scene) -> None:
    if scene.cluster.api_server.is_real:
        pytest.skip("a real Job controller brings six victims back after five minutes")
    await scene.nodes(*[8] * 12, pool=MAIN)
    bystander = running("bystander").of(12)
    await scene.create(bystander)
    await scene.bound(bystander)
    before = scene.uids(bystander)
    victim = await scene.define(ranked("victim", -1000).asking(cpu=7).needing(6).declared_by("coscheduling").of(0))
    await scene.create_job(victim, "victim", 6)
    for _ in range(ROUNDS):
        preemptor = urgent("urgent").asking(cpu=7).of(8)
        await scene.all_members_bound(victim, 6)
        await scene.create(preemptor)
        await scene.bound(preemptor)
        assert scene.uids(bystander) == before
        await scene.waits(victim, "members fit")
        await scene.delete(preemptor)


async def test_victims_that_are_made_anew_wait_and_start_again_when_there_is_room(scene: Scene) -> None:
    await scene.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    await scene.create(victim)
    await scene.bound(victim)
    await scene.create(preemptor)
    await scene.bound(preemptor)
    await scene.add_pods(victim)
    await scene.waits(victim, "0 of 4 members fit")
    await scene.nodes(4, pool=MAIN)
    await scene.bound(victim)
