"""Load balancing over placement's replicas: one call at a time each, unreachable ones last."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Self

import structlog
from grpc import aio

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.coordinator.placement_features import Declared
from muster.placement.v1.placement_pb2_grpc import PlacementServiceStub
from muster.rpc.channel import open_channel

RESOLVE_INTERVAL_SECONDS = 10.0
"""Interval of DNS lookups of names that may have several addresses."""
UNREACHABLE_AVOID_SECONDS = 1.0
"""How long other replicas are preferred to one that was unreachable."""
TIMEOUT_AVOID_SECONDS = 15.0
"""How long other replicas are preferred to one that timed out: each further call to it may take as long."""

_log = structlog.get_logger()


class Endpoint:
    """An address of placement: one replica, or a DNS name of several, among which gRPC balances."""

    def __init__(self, address: str, channel: aio.Channel) -> None:
        self.address, self.channel = address, channel
        self.stub = PlacementServiceStub(channel)
        self.replicas = 1
        self.calls = 0
        """Calls in flight."""
        self.avoid_until = 0.0
        """Time of the event loop's clock."""
        self.declared: Declared | None = None
        """What it declared, if it was asked and implements that."""
        self.asked_until = 0.0
        """Time of the event loop's clock at which it is asked again: another version may answer by then."""

    @property
    def idle(self) -> bool:
        """At least one of its replicas has no call in flight."""
        return self.calls < self.replicas


class Replicas:
    """All replicas of placement, with at most one call in flight for each."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = list(endpoints)
        self._next = 0
        self._freed = asyncio.Condition()

    @classmethod
    def at(cls, addresses: str, tls: TlsSettings = PLAIN_TEXT, server_name: str = "") -> Self:
        """Opens channels to addresses as in the settings: HOST:PORT or dns:///NAME:PORT, separated by commas.

        `server_name` is the name in their certificates, if it is not that of the address.
        """
        separate = [address.strip() for address in addresses.split(",")]
        return cls([Endpoint(address, open_channel(address, tls, server_name)) for address in separate if address])

    @property
    def count(self) -> int:
        """How many solves can run concurrently."""
        return sum(endpoint.replicas for endpoint in self._endpoints)

    @property
    def endpoints(self) -> int:
        """Number of addresses."""
        return len(self._endpoints)

    @property
    def channels(self) -> list[aio.Channel]:
        """One of each address."""
        return [endpoint.channel for endpoint in self._endpoints]

    @asynccontextmanager
    async def acquire(self, excluded: Collection[Endpoint] = ()) -> AsyncIterator[Endpoint]:
        """Waits for an idle endpoint that is not excluded, and reserves it for one call, round robin."""
        async with self._freed:
            while (endpoint := self._choose(excluded)) is None:
                await self._freed.wait()
            endpoint.calls += 1
        try:
            yield endpoint
        finally:
            endpoint.calls -= 1
            async with self._freed:
                self._freed.notify_all()

    def _choose(self, excluded: Collection[Endpoint]) -> Endpoint | None:
        now = asyncio.get_running_loop().time()
        round_robin = self._endpoints[self._next :] + self._endpoints[: self._next]
        idle = [endpoint for endpoint in round_robin if endpoint.idle and endpoint not in excluded]
        if not idle:
            return None
        chosen = next((endpoint for endpoint in idle if endpoint.avoid_until <= now), idle[0])
        self._next = (self._endpoints.index(chosen) + 1) % len(self._endpoints)
        return chosen

    @staticmethod
    def avoid(endpoint: Endpoint, seconds: float = UNREACHABLE_AVOID_SECONDS) -> None:
        """Prefers other endpoints for a while, after a call that failed."""
        endpoint.avoid_until = asyncio.get_running_loop().time() + seconds

    async def watch_count(self, on_change: Callable[[int], None]) -> None:
        """Calls `on_change` with the number of replicas, now and whenever DNS changes it, forever."""
        on_change(self.count)
        while any(endpoint.address.startswith("dns:") for endpoint in self._endpoints):
            before = self.count
            for endpoint in self._endpoints:
                if endpoint.address.startswith("dns:"):
                    endpoint.replicas = await _count_addresses(endpoint.address) or endpoint.replicas
            if self.count != before:
                _log.info("placement_replicas_changed", count=self.count)
                on_change(self.count)
                async with self._freed:
                    self._freed.notify_all()
            await asyncio.sleep(RESOLVE_INTERVAL_SECONDS)
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Closes all channels."""
        for endpoint in self._endpoints:
            await endpoint.channel.close()


async def _count_addresses(address: str) -> int:
    """Looks up how many addresses a DNS name has; 0 if the lookup fails."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        _log.warning("placement_lookup_failed", address=address, reason=str(error))
        return 0
    by_family = Counter(family for family, _ in {(family, sockaddr[0]) for family, *_, sockaddr in found})
    return max(by_family.values(), default=0)  # a replica may have an address of each family
