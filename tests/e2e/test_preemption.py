"""Preemption: as few gangs as possible, and only for a certain start."""

import contextlib

import pytest

from builders.e2e.faults import EVICTIONS
from builders.e2e.solve_relay import removes
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain

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


async def nothing_was_evicted(world: World, before: set[str], *workloads: Workload) -> None:
    """Wait until a later pod was handled, and check that all pods still exist."""
    fence = aside("fence")
    await world.nodes(1, pool=ASIDE)
    await world.create(fence)
    await world.bound(fence)
    assert world.uids(*workloads) == before


async def test_g43_one_gang_is_evicted_whole_rather_than_one_pod_of_four_i9(world: World) -> None:
    await world.nodes(4, 4, 4, 4, pool=MAIN)
    whole, others = running("whole").of(4), [running(f"other-{number}").of(3) for number in range(4)]
    for each in (whole, *others):
        await world.create(each)
        await world.bound(each)
    spared = world.uids(*others)
    preemptor = urgent("urgent").of(4)
    await world.create(preemptor)
    await world.bound(preemptor)
    assert world.uids(whole) == set()
    assert world.uids(*others) == spared
    await world.event(whole, "urgent")
    await world.satisfied(preemptor)


async def test_a_nonstrict_preemptor_takes_only_the_missing_capacity(world: World) -> None:
    await world.nodes(6, pool=MAIN)
    victim = running("victim").of(4)
    await world.create(victim)
    await world.bound(victim)
    preemptor = urgent("urgent").of(6).non_strict(600)
    await world.create(preemptor)
    await world.bound(preemptor)
    assert world.uids(victim) == set()


async def test_a_group_in_two_namespaces_preempts_as_one_i1_i9(world: World) -> None:
    await world.nodes(4, 4, pool=MAIN)
    victims = [running(f"victim-{number}").of(4) for number in range(2)]
    await world.create(*victims)
    await world.bound(*victims)
    spaces = [world.namespace(name) for name in "ab"]
    names = [f"{space}/half" for space in spaces]
    halves = [urgent("half").of(4).in_namespace(space).with_group(*names) for space in spaces]
    await world.create(halves[0])
    await world.waits(halves[0], "does not exist")
    assert len(world.uids(*victims)) == 8, "half a group harms nobody"
    await world.create(halves[1])
    await world.bound(*halves)
    assert world.uids(*victims) == set()


async def test_g44_equal_and_higher_priorities_are_never_evicted_i9(world: World) -> None:
    await world.nodes(4, pool=MAIN)
    equal, better = urgent("equal").of(2), ranked("better", 2000).of(2)
    await world.create(equal, better)
    await world.bound(equal, better)
    before = world.uids(equal, better)
    preemptor = urgent("urgent").of(2)
    await world.create(preemptor)
    await world.waits(preemptor, "members fit")
    await nothing_was_evicted(world, before, equal, better)


async def test_g44_nothing_is_evicted_if_preemption_would_not_help_i9(world: World) -> None:
    await world.nodes(4, 4, pool=MAIN)
    victim, safe = running("victim").of(4), ranked("safe", 5000).of(4)
    await world.create(victim, safe)
    await world.bound(victim, safe)
    before = world.uids(victim, safe)
    preemptor = urgent("urgent").of(5)
    await world.create(preemptor)
    await world.waits(preemptor, "0 of 5 members fit")
    await nothing_was_evicted(world, before, victim, safe)


async def test_g45_members_above_the_minimum_are_evicted_first(world: World) -> None:
    await world.nodes(6, pool=MAIN)
    victim, preemptor = running("victim").of(6).needing(4), urgent("urgent").of(2)
    await world.create_job(victim, "victim", 6)

    def running_pods() -> set[str]:
        pods = [pod for (_, name), pod in world.cluster.pods.items() if name.startswith("victim-")]
        there = [pod for pod in pods if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["uid"] for pod in there}

    await world.cluster.until(lambda: len(running_pods()) == 6, "six pods of the Job are bound")
    before = running_pods()
    await world.create(preemptor)
    await world.bound(preemptor)
    assert len(running_pods()) == 4
    assert running_pods() < before
    await world.satisfied(victim)


async def test_g46_preemptor_deleted_before_the_solve_response_i9(world: World) -> None:
    await world.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    await world.create(victim)
    await world.bound(victim)
    before = world.uids(victim)
    solves = world.cluster.solves
    with solves.holding(removes) as held:
        await world.create(preemptor)
        await held.wait()
        await world.minimum(preemptor, 4)  # known, so that it can be forgotten
        await world.delete(preemptor)
        await world.forgotten(preemptor)
    await nothing_was_evicted(world, before, victim)


async def test_g46_preemptor_deleted_while_the_plan_is_persisted_i9(world: World) -> None:
    await world.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    await world.create(victim)
    await world.bound(victim)
    before = world.uids(victim)
    await world.recorded(victim)
    solves = world.cluster.solves
    with contextlib.ExitStack() as etcd:
        with solves.holding(removes) as held:
            await world.create(preemptor)
            await held.wait()
            await world.minimum(preemptor, 4)
            etcd.enter_context(world.cluster.frozen("etcd"))
        await world.delete(preemptor)
        await world.forgotten(preemptor)
    await nothing_was_evicted(world, before, victim)


async def test_preemption_policy_never_is_respected_i9_i10(world: World) -> None:
    await world.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4).never_preempting()
    await world.create(victim)
    await world.bound(victim)
    before = world.uids(victim)
    await world.create(preemptor)
    await world.waits(preemptor, "0 of 4 members fit")
    await nothing_was_evicted(world, before, victim)
    await world.delete(victim)
    await world.bound(preemptor)


async def test_pods_protected_by_a_disruption_budget_are_not_evicted_i9(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, pool=MAIN)
    protected, other = (running(name).of(4).labelled(app=name) for name in ("protected", "other"))
    await world.create(other)
    await world.bound(other)
    await world.create(protected)  # younger: it would be the first victim without the budget
    await world.bound(protected)
    await world.budget(protected, least=4)
    before = world.uids(protected)
    preemptor = urgent("urgent").of(4)
    await world.create(preemptor)
    await world.bound(preemptor)
    assert world.uids(protected) == before
    assert world.uids(other) == set()


async def test_victims_capacity_is_nominated_for_the_preemptor_only(world: World) -> None:
    await world.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    thief, elsewhere = plain("thief").with_priority(0).on_nodes(pool=MAIN), aside("elsewhere")
    await world.create(victim)
    await world.bound(victim)
    with world.cluster.faults.hold(EVICTIONS, let_pass=2) as held:
        await world.create(preemptor)
        await held.until(2)
        await world.cluster.until(lambda: len(world.uids(victim)) == 2, "two victims are gone")
        await world.create(thief)
        await world.waits(thief)
        await world.nodes(1, pool=ASIDE)
        await world.create(elsewhere)
        await world.bound(elsewhere)
        assert world.bound_pods(thief) == world.bound_pods(preemptor) == {}
        answer = await world.cluster.explain(world.here(preemptor).id)
        assert list(answer.victims) == [world.here(victim).id]
        assert answer.nodes_with_nominated_capacity == 1
        held.release()
    await world.bound(preemptor)
    assert world.bound_pods(thief) == {}


async def test_a_crash_during_evictions_completes_the_plan_i5_i9(world: World) -> None:
    await world.nodes(4, pool=MAIN)
    victim, preemptor, thief = running("victim").of(4), urgent("urgent").of(4), plain("thief").with_priority(0)
    await world.create(victim)
    await world.bound(victim)
    with world.cluster.faults.hold(EVICTIONS, let_pass=2) as held:
        await world.create(preemptor)
        await held.until(2)
        await world.cluster.stack.kill("coordinator")
        await world.create(thief)
        held.drop()
        await world.cluster.stack.start(["coordinator"])
    await world.bound(preemptor)
    assert world.uids(victim) == set()
    assert world.bound_pods(thief) == {}


async def test_recreated_victims_do_not_take_nominated_capacity_i9(world: World) -> None:
    if world.cluster.api_server.is_real:
        pytest.skip("a real Job controller brings six victims back after five minutes")
    await world.nodes(*[8] * 12, pool=MAIN)
    bystander = running("bystander").of(12)
    await world.create(bystander)
    await world.bound(bystander)
    before = world.uids(bystander)
    victim = await world.define(ranked("victim", -1000).asking(cpu=7).needing(6).declared_by("coscheduling").of(0))
    await world.create_job(victim, "victim", 6)
    for _ in range(ROUNDS):
        preemptor = urgent("urgent").asking(cpu=7).of(8)
        await world.all_members_bound(victim, 6)
        await world.create(preemptor)
        await world.bound(preemptor)
        assert world.uids(bystander) == before
        await world.waits(victim, "members fit")
        await world.delete(preemptor)


async def test_recreated_victims_wait_and_start_when_capacity_is_free(world: World) -> None:
    await world.nodes(4, pool=MAIN)
    victim, preemptor = running("victim").of(4), urgent("urgent").of(4)
    await world.create(victim)
    await world.bound(victim)
    await world.create(preemptor)
    await world.bound(preemptor)
    await world.add_pods(victim)
    await world.waits(victim, "0 of 4 members fit")
    await world.nodes(4, pool=MAIN)
    await world.bound(victim)
