"""What users get wrong is quoted back to them on their objects; nothing crashes, nothing starts by mistake."""

from typing import Any

import pytest

from builders.e2e.world import Scene
from builders.gangs.workloads import gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_g25_pods_win_over_a_podgroup_that_says_otherwise_and_a_warning_says_so(scene: Scene) -> None:
    await scene.nodes(3)
    a = gang("a").of(3)
    await scene.create(a, only=(0,))
    five = gang("a").of(5).declared_by("koordinator")
    await scene.define(five)
    await scene.add_pods(a, 1, 2)
    await scene.bound(a)
    await scene.event(a, '"5"')
    await scene.undefine(five)


async def test_g26_a_minimum_that_is_no_number_is_quoted_and_once_mended_the_gang_starts(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(3).needing("five")
    await scene.create(a)
    await scene.waits(a, '"five"')
    await scene.event(a, '"five"')
    await scene.unschedulable(a, '"five"')
    await scene.annotate(a, min_available="3")
    await scene.bound(a)


async def test_g27_an_unknown_mode_counts_as_strict_with_a_warning(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(3).annotated(mode="Strct")
    await scene.create(a)
    await scene.bound(a)
    await scene.event(a, '"Strct"')


async def test_g28_a_total_below_the_minimum_counts_as_the_minimum_with_a_warning(scene: Scene) -> None:
    await scene.nodes(5)
    a = gang("a").of(5).annotated(total_number="2")
    await scene.create(a)
    await scene.bound(a)
    await scene.event(a, "total-number")


@pytest.mark.parametrize(
    ("groups", "quoted"), [("a/A", '"a/A"'), ('["A"]', '"A"'), ('{"a": 1}', '{"a'), ("[1, 2]", '"1"')]
)
async def test_g29_a_group_that_is_no_list_of_gangs_waits_with_the_reason(
    scene: Scene, groups: str, quoted: str
) -> None:
    await scene.nodes(4)
    a = gang("a").of(2).annotated(groups=groups)
    await scene.create(a)
    await scene.waits(a, "groups", quoted)


@pytest.mark.parametrize("minimum", [0, -1])
@pytest.mark.parametrize("dialect", ["koordinator", "coscheduling"])
async def test_a_podgroup_with_a_minimum_below_one_waits_and_quotes_it(
    scene: Scene, dialect: Any, minimum: int
) -> None:
    await scene.nodes(4)
    a = gang("a").of(2).needing(minimum).declared_by(dialect)
    await scene.create(a)
    await scene.waits(a, "minMember", str(minimum))
    await scene.edit_minimum(a, 2)
    await scene.bound(a)


@pytest.mark.parametrize("minimum", ["", " ", "3.5", "1e3", "99999999999999999999", "-2", "３", "0x10", "null"])
async def test_junk_for_a_minimum_never_starts_a_gang(scene: Scene, minimum: str) -> None:
    await scene.nodes(4)
    a = gang("a").of(2).needing(minimum)
    await scene.create(a)
    await scene.waits(a, "min-available")


async def test_a_pod_that_asks_more_than_any_node_has_says_so(scene: Scene) -> None:
    await scene.nodes(4, 8)
    pod = plain("giant").asking(cpu=64)
    await scene.create(pod)
    await scene.waits(pod, "cpu")
    await scene.unschedulable(pod, "cpu")
    await scene.event(pod, "cpu")


async def test_a_resource_that_no_node_has_is_named(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(2).asking(cpu=1, gpu=1)
    await scene.create(a)
    await scene.waits(a, "nvidia.com/gpu")


async def test_a_very_long_annotation_harms_nobody(scene: Scene) -> None:
    """An API server takes 256 KiB of annotations in all; ours is as long as may be."""
    await scene.nodes(4)
    a = gang("a").of(2).annotated(groups="x" * 200_000)
    b = gang("b").of(2).marked({"example.com/junk": "y" * 200_000})
    await scene.create(a, b)
    await scene.bound(b)
    waiting = await scene.waits(a, "groups")
    assert len(waiting.reason) < 2000


async def test_a_gang_name_that_cannot_be_one_keeps_the_pod_waiting(scene: Scene) -> None:
    await scene.nodes(4)
    pod = plain("p").marked({"gang.scheduling.koordinator.sh/name": "no such/name"})
    await scene.create(pod)
    await scene.unschedulable(pod, "no such/name")
    assert scene.bound_pods(pod) == {}


async def test_marks_of_two_dialects_follow_the_first_with_a_warning(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(2)
    labels = {"scheduling.x-k8s.io/pod-group": "other"}
    a = type(a)(**{**vars(a), "labels": labels})
    await scene.create(a)
    await scene.bound(a)
    await scene.event(a, "scheduling.x-k8s.io/pod-group")
