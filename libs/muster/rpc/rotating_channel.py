"""A channel under which certificates can be rotated: gRPC's own shows for ever the one that it was made with.

With new certificates there is a new channel below. Calls go to the newest, those under way end where they began, and a
channel that has no calls any more is closed.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio

from muster.rpc.credentials import Certificates, Pem


class RenewingChannel(aio.Channel):
    """Stubs take it for any channel."""

    def __init__(self, certificates: Certificates, connect: Callable[[Pem], aio.Channel]) -> None:
        """`connect` makes a channel with certificates; nothing is connected before the first call."""
        self._certificates, self._connect = certificates, connect
        self._newest = _Below(connect(certificates.pem))
        self._older: set[_Below] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def below(self) -> "_Below":
        """Where calls go now."""
        if not self._closed and self._certificates.renewed():
            old, self._newest = self._newest, _Below(self._connect(self._certificates.pem))
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
        return self.below().channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self.below().channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self.below().channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        """Take no more calls, and cancel those that do not end within `grace` seconds."""
        self._closed = True
        await asyncio.gather(*(each.channel.close(grace) for each in (self._newest, *self._older)), *self._closing)

    async def __aenter__(self) -> "RenewingChannel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _forget(self, below: "_Below") -> None:
        self._older.discard(below)
        task = asyncio.get_running_loop().create_task(below.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Below:
    """One channel, the calls under way on it, and what is to happen when there is none any more."""

    def __init__(self, channel: aio.Channel) -> None:
        self.channel = channel
        self._calls = 0
        self._unused: Callable[[_Below], None] | None = None

    def begun(self, call: Any) -> Any:
        """Count a call until it ends."""
        self._calls += 1
        call.add_done_callback(self._ended)
        return call

    def retire(self, unused: Callable[["_Below"], None]) -> None:
        """No new calls come: call `unused` once there is none."""
        self._unused = unused
        self._tell_if_unused()

    def _ended(self, _: object) -> None:
        self._calls -= 1
        self._tell_if_unused()

    def _tell_if_unused(self) -> None:
        if self._unused is not None and self._calls == 0:
            self._unused(self)


class _Method:
    """One method of a stub: the newest channel's, whenever it is called."""

    def __init__(
        self, channel: RenewingChannel, kind: str, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self._channel, self._kind = channel, kind
        self._method, self._arguments, self._options = method, arguments, options
        self._below: _Below | None = None
        self._callable: Any = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        below = self._channel.below()
        if below is not self._below:
            make = getattr(below.channel, self._kind)
            self._below, self._callable = below, make(self._method, *self._arguments, **self._options)
        return below.begun(self._callable(*arguments, **options))
