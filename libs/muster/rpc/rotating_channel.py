"""A channel whose certificates can be rotated: a gRPC channel keeps the certificate that it was created with.

New certificates open a new underlying channel. New calls use it, running calls finish on their channel, and an old
channel without calls is closed.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from muster.rpc.credentials import Certificates, Pem


class RotatingChannel(aio.Channel):
    """Accepted by stubs like any other channel."""

    def __init__(self, certificates: Certificates, connect: Callable[[Pem], aio.Channel]) -> None:
        """`connect` opens a channel with certificates; it must not connect before the first call."""
        self._certificates, self._connect = certificates, connect
        self._newest = _Underlying(connect(certificates.pem))
        self._older: set[_Underlying] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def current(self) -> "_Underlying":
        """The underlying channel for new calls."""
        if not self._closed and self._certificates.renewed():
            old, self._newest = self._newest, _Underlying(self._connect(self._certificates.pem))
            self._older.add(old)
            old.retire(self._forget)
        return self._newest

    def unary_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        return _Method(self, "unary_unary", method, arguments, options)

    def unary_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        return _Method(self, "unary_stream", method, arguments, options)

    def stream_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        return _Method(self, "stream_unary", method, arguments, options)

    def stream_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        return _Method(self, "stream_stream", method, arguments, options)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self.current().channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self.current().channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.current().channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        """Accept no more calls, and cancel calls that do not finish within `grace` seconds."""
        self._closed = True
        await asyncio.gather(*(each.channel.close(grace) for each in (self._newest, *self._older)), *self._closing)

    async def __aenter__(self) -> "RotatingChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _forget(self, below: "_Underlying") -> None:
        self._older.discard(below)
        task = asyncio.get_running_loop().create_task(below.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Underlying:
    """An underlying channel with its number of running calls."""

    def __init__(self, channel: aio.Channel) -> None:
        self.channel = channel
        self._calls = 0
        self._unused: Callable[[_Underlying], None] | None = None

    def begun(self, call: Any) -> Any:
        """Count a call until it ends."""
        self._calls += 1
        call.add_done_callback(self._ended)
        return call

    def retire(self, unused: Callable[["_Underlying"], None]) -> None:
        """Call `unused` once no call is running; no new calls start."""
        self._unused = unused
        self._check_unused()

    def _ended(self, _: object) -> None:
        self._calls -= 1
        self._check_unused()

    def _check_unused(self) -> None:
        if self._unused is not None and self._calls == 0:
            self._unused(self)


class _Method:
    """A method of a stub that uses the newest underlying channel on every call."""

    def __init__(
        self, channel: RotatingChannel, kind: str, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self._channel, self._kind = channel, kind
        self._method, self._arguments, self._options = method, arguments, options
        self._below: _Underlying | None = None
        self._callable: Any = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        below = self._channel.current()
        if below is not self._below:
            make = getattr(below.channel, self._kind)
            self._below, self._callable = below, make(self._method, *self._arguments, **self._options)
        return below.begun(self._callable(*arguments, **options))
