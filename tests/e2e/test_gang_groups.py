"""Gang groups across namespaces: all of their gangs start or none, whoever comes last and whoever declares what."""

from itertools import permutations

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")

GANGS, NAMESPACES = 100, 10
"""As many gangs as a group may have."""
GROUPS = "gang.scheduling.koordinator.sh/groups"


def large_group(scene: Scene) -> list[Workload]:
    """Gangs of two pods, all in one group, ten to a namespace."""
    spaces = [scene.namespace(f"n{number}") for number in range(NAMESPACES)]
    members = [gang(f"g{number:02}").of(2).in_namespace(spaces[number % NAMESPACES]) for number in range(GANGS)]
    names = [f"{member.namespace}/{member.name}" for member in members]
    return [member.with_group(*names) for member in members]


def pair(scene: Scene) -> tuple[Workload, Workload]:
    """Gangs of three in namespaces of their own; neither declares a group yet."""
    return (
        gang("left").of(3).in_namespace(scene.namespace("a")),
        gang("right").of(3).in_namespace(scene.namespace("b")),
    )


def names_of(*gangs: Workload) -> tuple[str, ...]:
    return tuple(f"{each.namespace}/{each.name}" for each in gangs)


async def test_a_group_of_a_hundred_gangs_in_ten_namespaces_starts_whole_or_not_at_all_g12_g14_i1(scene: Scene) -> None:
    await scene.nodes(*[20] * 9, 19)
    *early, late = group = large_group(scene)
    await scene.create(*early)
    await scene.create(late, only=(0,))
    for member in early:
        await scene.waits(member, f"{late.namespace}/{late.name}", "1 of 2 members")
    await scene.add_pods(late, 1)
    for member in group:
        await scene.waits(member, "1 cpu")
    await scene.nodes(1)
    await scene.bound(*group)
    for member in group:
        await scene.recorded(member)
    permits = [next(iter(scene.cluster.records.history[scene.here(member).id])) for member in group]
    assert {len(permit.group) for permit in permits} == {GANGS}
    assert len({permit.permitted_unix_millis for permit in permits}) == 1, "one transaction permits all of them"


async def test_a_group_of_a_hundred_gangs_is_finished_after_the_coordinator_was_killed_g20_i1_i6(scene: Scene) -> None:
    await scene.nodes(*[20] * 10)
    group = large_group(scene)
    with scene.cluster.faults.hold(BINDS, let_pass=50) as held:
        await scene.create(*group)
        await held.until(1)
        await scene.cluster.stack.kill("coordinator")
        held.drop()
    await scene.cluster.stack.start(["coordinator"])
    await scene.bound(*group)
    for member in group:
        await scene.satisfied(member)


async def test_a_group_of_more_than_a_hundred_gangs_waits_and_says_so_g29(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(2)
    a = a.with_group(*(f"{scene.name}/g{number}" for number in range(GANGS)), f"{scene.name}/a")
    await scene.create(a)
    await scene.waits(a, "groups", "101", "at most 100")


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_g12_partners_come_in_any_order(scene: Scene, order: tuple[int, ...]) -> None:
    await scene.nodes(6)
    names = tuple(f"{scene.name}/{name}" for name in "abc")
    group = [gang(name).of(2).with_group(*names) for name in "abc"]
    for number in order:
        assert not any(scene.bound_pods(member) for member in group)
        await scene.create(group[number])
        if number != order[-1]:
            await scene.waits(group[number], "of its gang group does not exist")
    await scene.bound(*group)


async def test_g13_who_is_named_by_a_stranger_starts_alone_and_the_stranger_waits(scene: Scene) -> None:
    await scene.nodes(10)
    left, right = pair(scene)
    stranger = left.with_group(*names_of(left, right))
    await scene.create(stranger)
    await scene.waits(stranger, "right of its gang group does not exist")
    await scene.create(right)
    await scene.bound(right)
    own, other = names_of(left, right)
    await scene.waits(stranger, f"gang {other} of its gang group", f'it must declare ["{own}", "{other}"]')
    await scene.unschedulable(stranger, f"gang {other} of its gang group")


async def test_g13_unequal_declarations_wait_until_they_are_made_equal(scene: Scene) -> None:
    await scene.nodes(10)
    left, right = pair(scene)
    own, other = names_of(left, right)
    left, wrong = left.with_group(own, other), right.with_group(own, other, f"{scene.name}/third")
    await scene.create(left, wrong)
    await scene.waits(left, f"gang {other} of its gang group", f'it must declare ["{own}", "{other}"]')
    await scene.waits(wrong, f"{scene.name}/third")
    await scene.annotate(wrong, groups=left.annotations[GROUPS])
    await scene.bound(left, right)


async def test_a_partner_deleted_while_the_group_waits_holds_the_others_g12(scene: Scene) -> None:
    await scene.nodes(5)
    left, right = pair(scene)
    names = names_of(left, right)
    left, right = left.with_group(*names), right.with_group(*names)
    await scene.create(left, right)
    await scene.waits(left, "1 cpu")
    await scene.delete(right)
    await scene.waits(left, f"gang {names[1]} of its gang group does not exist")
    smaller = right.of(2)
    await scene.create(smaller)
    await scene.bound(left, smaller)
