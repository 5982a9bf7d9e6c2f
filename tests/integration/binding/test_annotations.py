"""Write sets and removes annotations of pods, only on the pod with the given uid."""

import asyncio

import grpc
import pytest

from builders.binding.service import Rig, annotated, event, waiting
from builders.e2e.faults import Requests

TIMEOUT = "gang.scheduling.koordinator.sh/timeout"
PATCHES = Requests("PATCH", "/pods/[^/]+")
READS_OF_PODS = Requests("GET", "/pods/[^/]+")


async def annotations_of(muster: Rig, pod: str) -> dict[str, str]:
    return dict((await muster.pod(pod))["metadata"].get("annotations") or {})


async def test_annotations_are_set_and_removed_and_others_kept(muster: Rig) -> None:
    set_on, removed_from = await muster.pods("set", "removed")
    for name in ("set", "removed"):
        await muster.kube.patch("Pod", name, {"metadata": {"annotations": {"kept": "1", "old": "1"}}})
    response = await muster.write(
        annotations=[annotated(set_on, **{TIMEOUT: "true", "old": "2"}), annotated(removed_from, "old", "never-there")]
    )
    assert (response.written, response.gone, list(response.failures)) == (2, 0, [])
    assert await annotations_of(muster, "set") == {"kept": "1", "old": "2", TIMEOUT: "true"}
    assert await annotations_of(muster, "removed") == {"kept": "1"}


async def test_equal_annotations_change_nothing(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"})])
    before = (await muster.pod("trainer-0"))["metadata"]["resourceVersion"]
    assert (await muster.write(annotations=[annotated(pod, "other", **{TIMEOUT: "true"})])).written == 1
    assert (await muster.pod("trainer-0"))["metadata"]["resourceVersion"] == before


async def test_running_pods_are_annotated(muster: Rig) -> None:
    (pod,) = await muster.running("trainer-0")
    assert (await muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"})])).written == 1


async def test_deleted_and_recreated_pods_are_not_annotated(muster: Rig) -> None:
    gone, other, there = await muster.pods("gone", "other", "there")
    await muster.kube.delete("Pod", "gone")
    await muster.kube.delete("Pod", "other")
    await muster.pods("other")
    response = await muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"}) for pod in (gone, other, there)])
    assert (response.written, response.gone, list(response.failures)) == (1, 2, [])
    assert await annotations_of(muster, "other") == {}


@pytest.mark.parametrize("status", [409, 429, 500, 502, 503, 504])
async def test_annotations_are_retried(muster: Rig, status: int) -> None:
    pods = await muster.pods(*(f"trainer-{number}" for number in range(6)))
    with (
        muster.faults.refuse(PATCHES, status, times=8, headers={"Retry-After": "0"}),
        muster.faults.cut(PATCHES, times=3, carried_out=True),
        muster.faults.cut(READS_OF_PODS, times=1),
    ):
        response = await muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"}) for pod in pods])
    assert response.written == 6
    assert [await annotations_of(muster, f"trainer-{number}") for number in range(6)] == [{TIMEOUT: "true"}] * 6


async def test_conflict_with_a_deleted_pod_counts_as_gone(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.refuse(PATCHES, 409), muster.faults.hold(READS_OF_PODS) as held:
        writing = asyncio.create_task(muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"})]))
        await held.until(1)
        await muster.kube.delete("Pod", "trainer-0")
        held.release()
        assert (await writing).gone == 1


async def test_refusal_is_reported_with_the_server_message(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    for status in (403, 422):
        with muster.faults.refuse(PATCHES, status):
            response = await muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"})])
        assert list(response.failures) == [f"annotations of pod ml/trainer-0: {status}: made to fail"]


async def test_invalid_annotations_do_not_block_others(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    bad = [
        annotated(pod, **{"no key": "1"}),
        annotated(pod, TIMEOUT, **{TIMEOUT: "true"}),
        annotated(pod, big="x" * 300_000),
    ]
    response = await muster.write([waiting(pod)], [event(pod)], annotations=[*bad, annotated(pod, **{TIMEOUT: "true"})])
    assert response.written == 3
    assert [failure.partition(": ")[0] for failure in response.failures] == ["annotations of pod 'ml/trainer-0'"] * 3
    assert await annotations_of(muster, "trainer-0") == {TIMEOUT: "true"}


async def test_deadline_bounds_annotations(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.cut(PATCHES):
        response = await muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"})], seconds=5)
    assert len(response.failures) == 1


async def test_earlier_leader_cannot_annotate(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.bind([], epoch=7)
    with pytest.raises(grpc.aio.AioRpcError, match="leader epoch 6 is superseded"):
        await muster.write(annotations=[annotated(pod, **{TIMEOUT: "true"})], epoch=6)
    assert await annotations_of(muster, "trainer-0") == {}
