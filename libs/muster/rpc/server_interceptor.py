"""Server interceptor: checks the client, records spans and metrics, and turns errors into statuses and log lines.

Subscriptions (methods named Watch) get no span, because it would last as long as the process; they are ended when the
server stops.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import grpc
import structlog
from grpc import aio

from muster.rpc import call_spans
from muster.rpc.authorization import AllowedClients
from muster.rpc.call_metrics import counted, counted_subscription
from muster.rpc.call_spans import is_infrastructure, is_subscription
from muster.rpc.errors import RpcError, status_of
from muster.telemetry.metrics_enabled import metrics_enabled

if TYPE_CHECKING:
    _Method = grpc.RpcMethodHandler[Any, Any]  # not generic at run time

_log = structlog.get_logger()

_SERVER_ERRORS: Final = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})

_FIRST_WRITE_SECONDS: Final = 1.0
"""Longest wait for a client that does not read when the server stops."""

_Behavior = Callable[[Any, Any], Any]


class ServerInterceptor(aio.ServerInterceptor):
    """Wraps the methods of all services."""

    def __init__(self, allowed_clients: AllowedClients) -> None:
        self._allowed_clients = allowed_clients
        self._measured = metrics_enabled()
        self._subscriptions: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def end_subscriptions(self) -> None:
        """End all subscriptions and reject new ones with UNAVAILABLE."""
        self._stopping = True
        for task in self._subscriptions:
            task.cancel()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["_Method | None"]],
        details: grpc.HandlerCallDetails,
    ) -> "_Method | None":
        found: Any = await continuation(details)
        if found is None:  # gRPC answers UNIMPLEMENTED
            return None
        method = details.method
        behavior = found.unary_unary or found.unary_stream or found.stream_unary or found.stream_stream
        if self._allowed_clients:
            behavior = _restricted(self._allowed_clients, behavior)
        if is_subscription(method):
            wrapped = self._subscription(method, behavior)
            wrapped = (
                counted_subscription(method, wrapped) if self._measured and not is_infrastructure(method) else wrapped
            )
        elif is_infrastructure(method):
            if not self._allowed_clients:
                return found  # type: ignore[no-any-return]
            wrapped = _unobserved_call(method, behavior)
        else:
            traceparent = _traceparent(details)
            wrapped = _call(method, behavior, traceparent)
            wrapped = counted(method, wrapped, traceparent) if self._measured else wrapped
        return _like(found, wrapped)

    def _subscription(self, method: str, behavior: _Behavior) -> _Behavior:
        async def stream(request: Any, context: aio.ServicerContext[Any, Any]) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._subscriptions.add(task)
            try:
                if self._stopping:
                    raise asyncio.CancelledError
                await _answer(behavior, request, context)
            except asyncio.CancelledError:
                if not self._stopping:
                    raise  # the client cancelled
                task.uncancel()
                await context.abort(grpc.StatusCode.UNAVAILABLE, "this server is stopping")
            except aio.AbortError:
                raise
            except Exception as error:
                await _abort(method, error, context)
            finally:
                self._subscriptions.discard(task)

        return stream


def _restricted(allowed_clients: AllowedClients, behavior: _Behavior) -> _Behavior:
    def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        allowed_clients.check(context)
        return behavior(request, context)

    return call


def _unobserved_call(method: str, behavior: _Behavior) -> _Behavior:
    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await _answer(behavior, request, context)
        except RpcError as error:
            await _abort(method, error, context)

    return call


def _call(method: str, behavior: _Behavior, traceparent: str) -> _Behavior:
    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        with call_spans.server_span(method, traceparent) as span:
            try:
                return await _answer(behavior, request, context)
            except aio.AbortError:
                raise
            except Exception as error:
                if span is not None:
                    call_spans.set_rejected(span, *status_of(error))
                await _abort(method, error, context)

    return call


async def _answer(behavior: _Behavior, request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
    """The servicer's response; messages that it yields are written to the stream."""
    answer = behavior(request, context)
    if isinstance(answer, AsyncIterator):
        begun = False
        async for message in answer:
            await (context.write(message) if begun else _uncancelled(context.write(message)))
            begun = True
        return None
    return await answer


async def _uncancelled(first_write: Coroutine[Any, Any, None]) -> None:
    """Finish the first write even if cancelled: gRPC cannot end a stream while its first message is written."""
    writing = asyncio.ensure_future(first_write)
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(_retrieve)
        await asyncio.wait([writing], timeout=_FIRST_WRITE_SECONDS)
        raise


def _retrieve(task: asyncio.Future[None]) -> None:
    """Retrieve the exception of a write whose caller has gone, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


async def _abort(method: str, error: Exception, context: aio.ServicerContext[Any, Any]) -> None:
    code, message = status_of(error)
    if code in _SERVER_ERRORS:
        _log.error("call_failed", method=method, code=code.name, error=message, exc_info=error)
    else:
        _log.info("call_rejected", method=method, code=code.name, error=message)
    await context.abort(code, message)


def _traceparent(details: grpc.HandlerCallDetails) -> str:
    """The traceparent that the client sent; "" if none."""
    for name, value in details.invocation_metadata:
        if name == "traceparent" and isinstance(value, str):
            return value
    return ""


def _like(found: Any, behavior: _Behavior) -> "_Method":
    """The same kind of method with the same messages and this behavior."""
    make: Any = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[(found.request_streaming, found.response_streaming)]
    handler: _Method = make(behavior, found.request_deserializer, found.response_serializer)
    return handler
