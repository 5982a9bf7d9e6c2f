"""Gang groups across namespaces: all gangs start or none, in any order of creation and declaration."""

from itertools import permutations

import pytest

from builders.e2e.devices import claims_of, gpus, with_named_claim
from builders.e2e.faults import BINDS
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

GANGS, NAMESPACES = 100, 10
"""The maximum number of gangs in a group."""
GROUPS = "gang.scheduling.koordinator.sh/groups"


def large_group(world: World) -> list[Workload]:
    """Gangs of two pods in one group, ten per namespace."""
    spaces = [world.namespace(f"n{number}") for number in range(NAMESPACES)]
    members = [gang(f"g{number:02}").of(2).in_namespace(spaces[number % NAMESPACES]) for number in range(GANGS)]
    names = [f"{member.namespace}/{member.name}" for member in members]
    return [member.with_group(*names) for member in members]


def pair(world: World) -> tuple[Workload, Workload]:
    """Gangs of three in separate namespaces that do not declare a group yet."""
    return (
        gang("left").of(3).in_namespace(world.namespace("a")),
        gang("right").of(3).in_namespace(world.namespace("b")),
    )


def names_of(*gangs: Workload) -> tuple[str, ...]:
    return tuple(f"{each.namespace}/{each.name}" for each in gangs)


async def test_g12_g14_a_group_of_100_gangs_in_10_namespaces_starts_whole_i1(world: World) -> None:
    await world.nodes(*[20] * 9, 19)
    *early, late = group = large_group(world)
    await world.create(*early)
    await world.create(late, only=(0,))
    for member in early:
        await world.waits(member, f"{late.namespace}/{late.name}", "1 of 2 members")
    await world.add_pods(late, 1)
    for member in group:
        await world.waits(member, "1 cpu")
    await world.nodes(1)
    await world.bound(*group)
    for member in group:
        await world.recorded(member)
    permits = [next(iter(world.cluster.records.history[world.here(member).id])) for member in group]
    assert {len(permit.group) for permit in permits} == {GANGS}
    assert len({permit.permitted_unix_millis for permit in permits}) == 1, "one transaction permits all of them"


async def test_gangs_of_a_group_share_a_claim_where_there_are_just_enough_devices(world: World) -> None:
    """Also on an API server without controllers."""
    await world.nodes(8, cards=Cards(CardKind.GPU, 2))
    a, b = (world.here(gang(name).of(2)) for name in ("a", "b"))
    names = names_of(a, b)
    a = await with_named_claim(world, a.with_group(*names), gpus(world, 2))
    b = b.with_group(*names).with_spec(**a.spec)
    await world.create(a, b)
    await world.bound(a, b)
    [claim] = await claims_of(world, a)
    assert len(claim["status"]["reservedFor"]) == 4
    await world.delete(a)
    await world.delete(b)


async def test_g20_a_group_of_100_gangs_completes_after_a_crash_i1_i6(world: World) -> None:
    await world.nodes(*[20] * 10)
    group = large_group(world)
    with world.cluster.faults.hold(BINDS, let_pass=50) as held:
        await world.create(*group)
        await held.until(1)
        await world.cluster.stack.kill("coordinator")
        held.drop()
    await world.cluster.stack.start(["coordinator"])
    await world.bound(*group)
    for member in group:
        await world.satisfied(member)


async def test_g29_a_group_of_more_than_100_gangs_stays_pending_with_a_reason(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(2)
    a = a.with_group(*(f"{world.name}/g{number}" for number in range(GANGS)), f"{world.name}/a")
    await world.create(a)
    await world.waits(a, "groups", "101", "at most 100")


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_g12_gangs_of_a_group_are_created_in_any_order(world: World, order: tuple[int, ...]) -> None:
    await world.nodes(6)
    names = tuple(f"{world.name}/{name}" for name in "abc")
    group = [gang(name).of(2).with_group(*names) for name in "abc"]
    for number in order:
        assert not any(world.bound_pods(member) for member in group)
        await world.create(group[number])
        if number != order[-1]:
            await world.waits(group[number], "of its gang group does not exist")
    await world.bound(*group)


async def test_g13_a_one_sided_group_declaration_does_not_delay_the_named_gang(world: World) -> None:
    await world.nodes(10)
    left, right = pair(world)
    stranger = left.with_group(*names_of(left, right))
    await world.create(stranger)
    await world.waits(stranger, "right of its gang group does not exist")
    await world.create(right)
    await world.bound(right)
    own, other = names_of(left, right)
    await world.waits(stranger, f"gang {other} of its gang group", f'it must declare ["{own}", "{other}"]')
    await world.unschedulable(stranger, f"gang {other} of its gang group")


async def test_g13_unequal_group_declarations_wait_until_they_agree(world: World) -> None:
    await world.nodes(10)
    left, right = pair(world)
    own, other = names_of(left, right)
    left, wrong = left.with_group(own, other), right.with_group(own, other, f"{world.name}/third")
    await world.create(left, wrong)
    await world.waits(left, f"gang {other} of its gang group", f'it must declare ["{own}", "{other}"]')
    await world.waits(wrong, f"{world.name}/third")
    await world.annotate(wrong, groups=left.all_annotations()[GROUPS])
    await world.bound(left, right)


async def test_g12_a_gang_deleted_from_a_pending_group_blocks_the_others(world: World) -> None:
    await world.nodes(5)
    left, right = pair(world)
    names = names_of(left, right)
    left, right = left.with_group(*names), right.with_group(*names)
    await world.create(left, right)
    await world.waits(left, "1 cpu")
    await world.delete(right)
    await world.waits(left, f"gang {names[1]} of its gang group does not exist")
    smaller = right.of(2)
    await world.create(smaller)
    await world.bound(left, smaller)
