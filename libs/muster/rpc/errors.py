"""What goes wrong in calls, and the one place that turns errors into statuses."""

from collections.abc import Coroutine
from typing import Any

import grpc


class RpcError(Exception):
    """Raised in a servicer method, it becomes the status of the call."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class MissingDeadline(RuntimeError):
    """A call was made without `timeout=`; only subscriptions (methods named Watch) may run for ever."""

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} was called without a deadline; pass timeout=SECONDS")
        self.method = method


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Code and message that the caller is given for an error."""
    if isinstance(error, RpcError):
        return error.code, error.message
    if isinstance(error, TimeoutError):
        return grpc.StatusCode.DEADLINE_EXCEEDED, str(error) or "it took longer than the call may"
    return grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"


def describe(error: grpc.aio.AioRpcError) -> str:
    """One line for logs: "UNAVAILABLE: failed to connect ..."."""
    return f"{error.code().name}: {error.details()}"


def outcome_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Status and message of a call that has ended: gRPC tells them only to those who wait, and there is nothing to
    wait for.
    """
    code = _at_once(call.code())
    if not isinstance(code, grpc.StatusCode):
        code = next((known for known in grpc.StatusCode if known.value[0] == code), grpc.StatusCode.UNKNOWN)
    return code, _at_once(call.details()) or ""


def _at_once(waiting: Coroutine[Any, Any, Any]) -> Any:
    try:
        waiting.send(None)
    except StopIteration as told:
        return told.value
    finally:
        waiting.close()
    return None
