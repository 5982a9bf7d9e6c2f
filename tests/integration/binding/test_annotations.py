"""Write sets and removes annotations of pods, each on the pod that is meant and on no other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from builders.binding.service import Rig, annotated, event, rig, waiting
from builders.e2e.faults import Requests

MARK = "gang.scheduling.koordinator.sh/timeout"
PATCHES = Requests("PATCH", "/pods/[^/]+")
READS_OF_PODS = Requests("GET", "/pods/[^/]+")


@pytest.fixture
async def muster(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path, requests_in_flight=8) as found:
        yield found


async def annotations_of(muster: Rig, pod: str) -> dict[str, str]:
    return dict((await muster.pod(pod))["metadata"].get("annotations") or {})


async def test_annotations_are_set_and_removed_and_others_stay(muster: Rig) -> None:
    set_on, removed_from = await muster.pods("set", "removed")
    for name in ("set", "removed"):
        await muster.kube.patch("Pod", name, {"metadata": {"annotations": {"kept": "1", "old": "1"}}})
    response = await muster.write(
        annotations=[annotated(set_on, **{MARK: "true", "old": "2"}), annotated(removed_from, "old", "never-there")]
    )
    assert (response.written, response.gone, list(response.failures)) == (2, 0, [])
    assert await annotations_of(muster, "set") == {"kept": "1", "old": "2", MARK: "true"}
    assert await annotations_of(muster, "removed") == {"kept": "1"}


async def test_what_is_so_already_changes_nothing(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.write(annotations=[annotated(pod, **{MARK: "true"})])
    before = (await muster.pod("trainer-0"))["metadata"]["resourceVersion"]
    assert (await muster.write(annotations=[annotated(pod, "other", **{MARK: "true"})])).written == 1
    assert (await muster.pod("trainer-0"))["metadata"]["resourceVersion"] == before


async def test_pods_that_run_are_marked_too(muster: Rig) -> None:
    (pod,) = await muster.running("trainer-0")
    assert (await muster.write(annotations=[annotated(pod, **{MARK: "true"})])).written == 1


async def test_pods_that_are_gone_or_others_are_left_alone(muster: Rig) -> None:
    gone, other, there = await muster.pods("gone", "other", "there")
    await muster.kube.delete("Pod", "gone")
    await muster.kube.delete("Pod", "other")
    await muster.pods("other")
    response = await muster.write(annotations=[annotated(pod, **{MARK: "true"}) for pod in (gone, other, there)])
    assert (response.written, response.gone, list(response.failures)) == (1, 2, [])
    assert await annotations_of(muster, "other") == {}


@pytest.mark.parametrize("status", [409, 429, 500, 502, 503, 504])
async def test_annotations_get_through_trouble(muster: Rig, status: int) -> None:
    pods = await muster.pods(*(f"trainer-{number}" for number in range(6)))
    with (
        muster.faults.refuse(PATCHES, status, times=8, headers={"Retry-After": "0"}),
        muster.faults.cut(PATCHES, times=3, carried_out=True),
        muster.faults.cut(READS_OF_PODS, times=1),
    ):
        response = await muster.write(annotations=[annotated(pod, **{MARK: "true"}) for pod in pods])
    assert response.written == 6
    assert [await annotations_of(muster, f"trainer-{number}") for number in range(6)] == [{MARK: "true"}] * 6


async def test_a_conflict_with_a_pod_that_is_gone_by_now(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.refuse(PATCHES, 409), muster.faults.hold(READS_OF_PODS) as held:
        writing = asyncio.create_task(muster.write(annotations=[annotated(pod, **{MARK: "true"})]))
        await held.until(1)
        await muster.kube.delete("Pod", "trainer-0")
        held.release()
        assert (await writing).gone == 1


async def test_what_the_api_server_refuses_is_told_in_its_words(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    for status in (403, 422):
        with muster.faults.refuse(PATCHES, status):
            response = await muster.write(annotations=[annotated(pod, **{MARK: "true"})])
        assert list(response.failures) == [f"annotations of pod ml/trainer-0: {status}: made to fail"]


async def test_bad_ones_hold_up_nobody(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    bad = [
        annotated(pod, **{"no key": "1"}),
        annotated(pod, MARK, **{MARK: "true"}),
        annotated(pod, big="x" * 300_000),
    ]
    response = await muster.write([waiting(pod)], [event(pod)], annotations=[*bad, annotated(pod, **{MARK: "true"})])
    assert response.written == 3
    assert [failure.partition(": ")[0] for failure in response.failures] == ["annotations of pod 'ml/trainer-0'"] * 3
    assert await annotations_of(muster, "trainer-0") == {MARK: "true"}


async def test_the_deadline_bounds_them(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.cut(PATCHES):
        response = await muster.write(annotations=[annotated(pod, **{MARK: "true"})], seconds=5)
    assert len(response.failures) == 1


async def test_a_deposed_leader_marks_nobody(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.bind([], epoch=7)
    with pytest.raises(grpc.aio.AioRpcError, match="leader epoch 6 is over"):
        await muster.write(annotations=[annotated(pod, **{MARK: "true"})], epoch=6)
    assert await annotations_of(muster, "trainer-0") == {}
