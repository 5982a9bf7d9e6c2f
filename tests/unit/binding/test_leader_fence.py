"""Fencing by leader epoch: only the epoch of the leader key in etcd is admitted, and nothing else is remembered."""

import asyncio
import gc

import grpc
import pytest

from builders.telemetry.metrics import Figures
from builders.wait import eventually
from muster.binding.leader_fence import LeaderFence, LeaderUnknown
from muster.rpc.errors import RpcError

REFUSED = "muster_leader_epochs_refused_total"


class LeaderKey:
    """The leader key in etcd."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.reads = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.outage = ""

    async def __call__(self) -> int:
        self.reads += 1
        epoch = self.epoch
        await self.answers.wait()
        if self.outage:
            raise LeaderUnknown(self.outage)
        return epoch


def never(reason: str) -> None:
    raise AssertionError(f"stopped: {reason}")


async def call(fence: LeaderFence, epoch: int) -> None:
    async with fence.admit(epoch, never):
        pass


async def refusal(fence: LeaderFence, epoch: int) -> RpcError:
    with pytest.raises(RpcError) as refused:
        await call(fence, epoch)
    return refused.value


async def test_calls_of_one_leader_run_concurrently_and_read_the_key_once() -> None:
    key = LeaderKey(5)
    fence = LeaderFence(key)
    async with fence.admit(5, never), fence.admit(5, lambda reason: never(reason)):
        pass
    await call(fence, 5)
    assert key.reads == 1


async def test_earlier_leader_is_refused() -> None:
    fence = LeaderFence(LeaderKey(7))
    error = await refusal(fence, 5)
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "leader epoch 5 is superseded: epoch 7 leads" in str(error)


@pytest.mark.parametrize("epoch", [8, 2**63, 2**64 - 1])
async def test_epoch_that_etcd_does_not_have_is_refused_counted_and_not_remembered(epoch: int) -> None:
    fence = LeaderFence(LeaderKey(7))
    before = Figures.here()
    async with fence.admit(7, never):
        error = await refusal(fence, epoch)
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert f"leader epoch {epoch} is not confirmed by etcd: the leader key in etcd has create revision 7" in str(error)
    assert Figures.here()(REFUSED, reason="unconfirmed") == before(REFUSED, reason="unconfirmed") + 1
    await call(fence, 7)


async def test_epoch_is_refused_while_none_leads() -> None:
    error = await refusal(LeaderFence(LeaderKey()), 2**63)
    assert "not confirmed by etcd: no coordinator leads" in str(error)


async def test_epoch_that_cannot_be_confirmed_is_refused_for_now() -> None:
    key = LeaderKey(7)
    fence = LeaderFence(key)
    await call(fence, 7)
    key.outage = "etcd does not answer"
    error = await refusal(fence, 8)
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert "leader epoch 8 cannot be confirmed: etcd does not answer; retry" in str(error)
    await call(fence, 7)
    key.outage, key.epoch = "", 8
    await call(fence, 8)


async def test_later_leader_stops_running_calls_of_earlier_ones() -> None:
    key = LeaderKey(5)
    fence = LeaderFence(key)
    reasons: list[str] = []
    async with fence.admit(5, reasons.append):
        key.epoch = 6
        await call(fence, 6)
        assert reasons == ["leader epoch 5 is superseded: epoch 6 leads; the caller no longer does"]


async def test_refused_epoch_stops_calls_of_a_leader_that_etcd_has_replaced() -> None:
    key = LeaderKey(5)
    fence = LeaderFence(key)
    reasons: list[str] = []
    async with fence.admit(5, reasons.append):
        key.epoch = 6
        await refusal(fence, 9)
        assert len(reasons) == 1
    assert "superseded" in str(await refusal(fence, 5))


async def test_lower_epoch_is_admitted_after_a_restore_of_etcd() -> None:
    key = LeaderKey(900)
    fence = LeaderFence(key)
    await call(fence, 900)
    key.epoch = 40
    await call(fence, 40)
    assert "not confirmed" in str(await refusal(fence, 900))


async def test_flood_of_made_up_epochs_costs_one_read_at_a_time() -> None:
    key = LeaderKey(5)
    fence = LeaderFence(key)
    await call(fence, 5)
    key.answers.clear()
    flood = [asyncio.ensure_future(refusal(fence, 1_000 + number)) for number in range(100)]
    await eventually(lambda: key.reads == 2)
    late = [asyncio.ensure_future(refusal(fence, 2_000 + number)) for number in range(100)]
    key.epoch = 6  # after the read that runs: the new leader needs a later one
    leader = asyncio.ensure_future(call(fence, 6))
    key.answers.set()
    await leader
    await asyncio.gather(*flood, *late)
    assert key.reads == 3


async def test_failed_read_for_cancelled_calls_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    key = LeaderKey(5)
    fence = LeaderFence(key)
    key.answers.clear()
    key.outage = "etcd does not answer"
    cancelled = asyncio.ensure_future(call(fence, 5))
    await eventually(lambda: key.reads == 1)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    key.answers.set()
    await refusal(fence, 5)  # its read begins when the one of the cancelled call has ended
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_epoch_is_required() -> None:
    error = await refusal(LeaderFence(LeaderKey(5)), 0)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "leader_epoch is 0" in str(error)
