"""Errors of calls, and their mapping to gRPC statuses."""

from collections.abc import Coroutine
from typing import Any

import grpc


class RpcError(Exception):
    """Sets the status of the call when it is raised in a servicer method."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class MissingDeadline(RuntimeError):
    """A call was made without `timeout=`; only subscriptions (methods named Watch) may do so."""

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} was called without a deadline; pass timeout=SECONDS")
        self.method = method


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Status code and message for an error."""
    if isinstance(error, RpcError):
        return error.code, error.message
    if isinstance(error, TimeoutError):
        return grpc.StatusCode.DEADLINE_EXCEEDED, str(error) or "the call took longer than its deadline"
    return grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"


def describe(error: grpc.aio.AioRpcError) -> str:
    """One line for logs: "UNAVAILABLE: failed to connect ..."."""
    return f"{error.code().name}: {error.details()}"


def in_words(error: grpc.aio.AioRpcError, service: str = "it") -> str:
    """One clause for users, to whom names of gRPC statuses say nothing. `service`: what was called."""
    details = error.details() or ""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{service} did not answer in time"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"{service} could not be reached: {details}" if details else f"{service} could not be reached"
    return f"{service} answered with an error: {details or error.code().name.lower().replace('_', ' ')}"


def outcome_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Status and message of a call that has ended. gRPC offers only coroutines for them, which do not wait here."""
    code = _result(call.code())
    if not isinstance(code, grpc.StatusCode):
        code = next((known for known in grpc.StatusCode if known.value[0] == code), grpc.StatusCode.UNKNOWN)
    return code, _result(call.details()) or ""


def _result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()
    return None
