"""Labels written before a pod is bound, so that its containers can read them at their start."""

import asyncio

import grpc
import pytest

from builders.binding.service import Rig, name_of, results_of
from builders.e2e.faults import BINDS, Requests
from muster.binding.v1 import binding_pb2 as pb

RANK = "sakkara.member.rank"
PATCHES = Requests("PATCH", "/pods/[^/]+")
READS_OF_PODS = Requests("GET", "/pods/[^/]+")
BOUND, CONFLICT, GONE, FAILED = (
    pb.BindResult.OUTCOME_BOUND,
    pb.BindResult.OUTCOME_CONFLICT,
    pb.BindResult.OUTCOME_GONE,
    pb.BindResult.OUTCOME_FAILED,
)


async def labels_of(muster: Rig, pod: str) -> dict[str, str]:
    return dict((await muster.pod(pod))["metadata"].get("labels") or {})


async def test_labels_are_written_before_the_bind(muster: Rig) -> None:
    pods = await muster.pods("member-0")
    await muster.kube.patch("Pod", "member-0", {"metadata": {"labels": {"app": "kept"}}})
    with muster.faults.hold(BINDS) as held:
        call = asyncio.create_task(muster.bind(pods, labels={RANK: "3"}))
        await held.until(1)
        assert await labels_of(muster, "member-0") == {"app": "kept", RANK: "3"}
        assert await muster.nodes_of(pods) == [""]
        held.release()
        (result,) = await call
    assert result.outcome == BOUND
    assert await muster.nodes_of(pods) == ["node-0"]


@pytest.mark.parametrize("status", [403, 422])
async def test_pod_whose_labels_are_refused_is_not_bound(muster: Rig, status: int) -> None:
    pods = await muster.pods("member-0")
    with muster.faults.refuse(PATCHES, status):
        (result,) = await muster.bind(pods, labels={RANK: "3"})
    assert (result.outcome, result.message) == (FAILED, f"its labels: {status}: made to fail")
    assert await muster.nodes_of(pods) == [""]


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_labels_are_retried(muster: Rig, status: int) -> None:
    pods = await muster.pods("member-0", "member-1")
    with (
        muster.faults.refuse(PATCHES, status, times=3, headers={"Retry-After": "0"}),
        muster.faults.cut(PATCHES, times=2, carried_out=True),
        muster.faults.cut(READS_OF_PODS, times=1),
    ):
        results = await muster.bind(pods, labels={RANK: "3"})
    assert [result.outcome for result in results] == [BOUND, BOUND]
    assert [await labels_of(muster, f"member-{index}") for index in range(2)] == [{RANK: "3"}] * 2


async def test_retried_bind_does_not_write_labels_again(muster: Rig) -> None:
    pods = await muster.pods("member-0")
    with muster.faults.refuse(BINDS, 503, times=2), muster.faults.seen(PATCHES) as patches:
        (result,) = await muster.bind(pods, labels={RANK: "3"})
    assert (result.outcome, len(patches)) == (BOUND, 1)


async def test_bind_with_labels_can_be_repeated(muster: Rig) -> None:
    pods = await muster.pods("member-0")
    with muster.faults.hold(BINDS) as held:
        call = muster.bind_call(pods, labels={RANK: "3"})
        await held.until(1)
        call.cancel()
        held.drop()
    for _ in range(2):
        (result,) = await muster.bind(pods, labels={RANK: "3"})
        assert result.outcome == BOUND
    assert await labels_of(muster, "member-0") == {RANK: "3"}


async def test_recreated_pod_gets_no_labels(muster: Rig) -> None:
    gone, other = await muster.pods("gone", "other")
    await muster.kube.delete("Pod", "gone")
    await muster.kube.delete("Pod", "other")
    await muster.pods("other")
    results = await muster.bind([gone, other], labels={RANK: "3"})
    assert [result.outcome for result in results] == [GONE, GONE]
    assert await labels_of(muster, "other") == {}


async def test_labelled_pod_bound_elsewhere_is_a_conflict(muster: Rig) -> None:
    pods = await muster.pods("member-0")
    await muster.kube.bind("member-0", "node-7")
    (result,) = await muster.bind(pods, labels={RANK: "3"})
    assert (result.outcome, result.node) == (CONFLICT, "node-7")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        pytest.param({"no key": "1"}, "'no key' is not a valid key", id="key"),
        pytest.param({RANK: "x" * 64}, "label 'sakkara.member.rank': 'xxx", id="long value"),
        pytest.param({RANK: "a b"}, "'a b' is not a valid value", id="value"),
    ],
)
async def test_invalid_labels_are_rejected_before_any_write(muster: Rig, labels: dict[str, str], message: str) -> None:
    pods = await muster.pods("member-0")
    with pytest.raises(grpc.aio.AioRpcError, match=message) as refused:
        await results_of(muster.bind_call(pods, labels=labels))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await muster.nodes_of(pods) == [""]


async def test_write_sets_and_removes_labels(muster: Rig) -> None:
    (pod,) = await muster.pods("member-0")
    await muster.kube.patch("Pod", "member-0", {"metadata": {"labels": {"app": "kept", "old": "1"}}})
    wanted = pb.PodAnnotations(
        pod=name_of(pod), set={"note": "2"}, set_labels={RANK: "0"}, remove_labels=["old", "never-there"]
    )
    assert (await muster.write(annotations=[wanted])).written == 1
    assert await labels_of(muster, "member-0") == {"app": "kept", RANK: "0"}
    assert (await muster.pod("member-0"))["metadata"]["annotations"] == {"note": "2"}


async def test_invalid_labels_do_not_block_others(muster: Rig) -> None:
    (pod,) = await muster.pods("member-0")
    bad = [
        pb.PodAnnotations(pod=name_of(pod), set_labels={RANK: "a b"}),
        pb.PodAnnotations(pod=name_of(pod), set_labels={RANK: "1"}, remove_labels=[RANK]),
    ]
    response = await muster.write(annotations=[*bad, pb.PodAnnotations(pod=name_of(pod), set_labels={RANK: "1"})])
    assert (response.written, len(response.failures)) == (1, 2)
    assert [failure.partition(": ")[0] for failure in response.failures] == ["labels of pod 'ml/member-0'"] * 2
