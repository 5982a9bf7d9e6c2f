"""Invalid input is quoted on the user's objects; nothing crashes, nothing starts by mistake."""

from typing import Any

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_g25_pod_annotations_override_the_podgroup_with_a_warning(world: World) -> None:
    await world.nodes(3)
    a = gang("a").of(3)
    await world.create(a, only=(0,))
    five = gang("a").of(5).declared_by("koordinator")
    await world.define(five)
    await world.add_pods(a, 1, 2)
    await world.bound(a)
    await world.event(a, '"5"')
    await world.undefine(five)


async def test_g26_a_non_numeric_minimum_is_quoted_and_the_corrected_gang_starts(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(3).needing("five")
    await world.create(a)
    await world.waits(a, '"five"')
    await world.event(a, '"five"')
    await world.unschedulable(a, '"five"')
    await world.annotate(a, min_available="3")
    await world.bound(a)


async def test_g27_an_unknown_mode_is_treated_as_strict_with_a_warning(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(3).annotated(mode="Strct")
    await world.create(a)
    await world.bound(a)
    await world.event(a, '"Strct"')


async def test_g28_a_total_below_the_minimum_is_raised_to_it_with_a_warning(world: World) -> None:
    await world.nodes(5)
    a = gang("a").of(5).annotated(total_number="2")
    await world.create(a)
    await world.bound(a)
    await world.event(a, "total-number")


@pytest.mark.parametrize(
    ("groups", "quoted"), [("a/A", '"a/A"'), ('["A"]', '"A"'), ('{"a": 1}', '{"a'), ("[1, 2]", '"1"')]
)
async def test_g29_a_malformed_gang_group_stays_pending_with_the_reason(world: World, groups: str, quoted: str) -> None:
    await world.nodes(4)
    a = gang("a").of(2).annotated(groups=groups)
    await world.create(a)
    await world.waits(a, "groups", quoted)


@pytest.mark.parametrize("minimum", [0, -1])
@pytest.mark.parametrize("dialect", ["koordinator", "coscheduling"])
async def test_a_podgroup_minimum_below_one_stays_pending_and_is_quoted(
    world: World, dialect: Any, minimum: int
) -> None:
    await world.nodes(4)
    a = gang("a").of(2).needing(minimum).declared_by(dialect)
    await world.create(a)
    await world.waits(a, "minMember", str(minimum))
    await world.edit_minimum(a, 2)
    await world.bound(a)


@pytest.mark.parametrize("minimum", ["", " ", "3.5", "1e3", "99999999999999999999", "-2", "３", "0x10", "null"])
async def test_a_garbage_minimum_never_starts_a_gang(world: World, minimum: str) -> None:
    await world.nodes(4)
    a = gang("a").of(2).needing(minimum)
    await world.create(a)
    await world.waits(a, "min-available")


async def test_a_pod_larger_than_every_node_is_reported(world: World) -> None:
    await world.nodes(4, 8)
    pod = plain("giant").asking(cpu=64)
    await world.create(pod)
    await world.waits(pod, "cpu")
    await world.unschedulable(pod, "cpu")
    await world.event(pod, "cpu")


async def test_a_resource_that_no_node_offers_is_named(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(2).asking(cpu=1, gpu=1)
    await world.create(a)
    await world.waits(a, "nvidia.com/gpu")


async def test_a_very_long_annotation_affects_no_other_gang(world: World) -> None:
    """The API server accepts 256 KiB of annotations in all; this one has the maximum length."""
    await world.nodes(4)
    a = gang("a").of(2).annotated(groups="x" * 200_000)
    b = gang("b").of(2).marked({"example.com/junk": "y" * 200_000})
    await world.create(a, b)
    await world.bound(b)
    waiting = await world.waits(a, "groups")
    assert len(waiting.reason) < 2000


async def test_a_pod_with_an_invalid_gang_name_stays_pending(world: World) -> None:
    await world.nodes(4)
    pod = plain("p").marked({"gang.scheduling.koordinator.sh/name": "no such/name"})
    await world.create(pod)
    await world.unschedulable(pod, "no such/name")
    assert world.bound_pods(pod) == {}


async def test_marks_of_two_dialects_follow_the_first_with_a_warning(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(2)
    labels = {"scheduling.x-k8s.io/pod-group": "other"}
    a = type(a)(**{**vars(a), "labels": labels})
    await world.create(a)
    await world.bound(a)
    await world.event(a, "scheduling.x-k8s.io/pod-group")
