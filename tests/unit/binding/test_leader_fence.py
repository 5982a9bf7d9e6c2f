"""Fencing by leader epoch."""

import grpc
import pytest

from muster.binding.leader_fence import LeaderFence
from muster.rpc.errors import RpcError


def never(reason: str) -> None:
    raise AssertionError(f"stopped: {reason}")


def test_calls_of_one_leader_run_concurrently() -> None:
    fence = LeaderFence()
    with fence.admit(5, never), fence.admit(5, lambda reason: never(reason)):
        pass


def test_earlier_leader_is_rejected() -> None:
    fence = LeaderFence()
    with fence.admit(7, never):
        pass
    with (
        pytest.raises(RpcError, match="leader epoch 5 is superseded: epoch 7 has called") as refused,
        fence.admit(5, never),
    ):
        pass
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_later_leader_stops_running_calls_of_earlier_ones() -> None:
    fence = LeaderFence()
    reasons: list[str] = []
    with fence.admit(5, reasons.append):
        assert reasons == []
        with fence.admit(6, never):
            assert reasons == ["leader epoch 5 is superseded: epoch 6 has called; the caller no longer leads"]


def test_finished_calls_are_not_stopped() -> None:
    fence = LeaderFence()
    with fence.admit(5, never):
        pass
    with fence.admit(6, never):
        pass


def test_epoch_is_required() -> None:
    with pytest.raises(RpcError, match="leader_epoch is 0") as refused, LeaderFence().admit(0, never):
        pass
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
