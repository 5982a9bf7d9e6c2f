"""Fencing by leader epochs."""

import grpc
import pytest

from muster.binding.leader_fence import Epochs
from muster.rpc.errors import RpcError


def nothing(why: str) -> None:
    raise AssertionError(f"stopped: {why}")


def test_calls_of_the_leader_run_side_by_side() -> None:
    epochs = Epochs()
    with epochs.admitted(5, nothing), epochs.admitted(5, lambda why: nothing(why)):
        pass


def test_a_deposed_leader_is_refused() -> None:
    epochs = Epochs()
    with epochs.admitted(7, nothing):
        pass
    with (
        pytest.raises(RpcError, match="leader epoch 5 is over: epoch 7 has called") as refused,
        epochs.admitted(5, nothing),
    ):
        pass
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_running_calls_are_stopped_when_a_later_leader_comes() -> None:
    epochs = Epochs()
    reasons: list[str] = []
    with epochs.admitted(5, reasons.append):
        assert reasons == []
        with epochs.admitted(6, nothing):
            assert reasons == ["leader epoch 5 is over: epoch 6 has called; the caller no longer leads"]


def test_calls_that_have_ended_are_not_stopped() -> None:
    epochs = Epochs()
    with epochs.admitted(5, nothing):
        pass
    with epochs.admitted(6, nothing):
        pass


def test_an_epoch_is_required() -> None:
    with pytest.raises(RpcError, match="leader_epoch is 0") as refused, Epochs().admitted(0, nothing):
        pass
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
