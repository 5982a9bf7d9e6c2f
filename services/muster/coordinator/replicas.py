"""Placement's replicas: how many there are, and whose turn it is."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Self

import structlog
from grpc import aio

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.placement.v1.placement_pb2_grpc import PlacementServiceStub
from muster.rpc.channel import open_channel

LOOK_AGAIN_SECONDS = 10.0
"""How often names are looked up that may stand for several replicas."""
SHUNNED_SECONDS = 1.0
"""A replica that could not be reached is asked after the others for so long."""
SILENT_SECONDS = 15.0
"""One that did not answer in time, for so long: each time it is asked again may cost as much time as the last."""

_log = structlog.get_logger()


class Place:
    """An address at which placement is asked: one replica, or a name for several of which gRPC chooses in turn."""

    def __init__(self, address: str, channel: aio.Channel) -> None:
        self.address, self.channel = address, channel
        self.stub = PlacementServiceStub(channel)
        self.replicas = 1
        self.asked = 0
        """Calls under way."""
        self.shunned_until = 0.0

    @property
    def idle(self) -> bool:
        """A replica of it has nothing to do."""
        return self.asked < self.replicas


class Replicas:
    """All replicas. Each is asked one thing at a time."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)
        self._next = 0
        self._freed = asyncio.Condition()

    @classmethod
    def at(cls, addresses: str, tls: TlsSettings = PLAIN_TEXT, server_name: str = "") -> Self:
        """Addresses as settings have them: HOST:PORT or dns:///NAME:PORT, several of them separated by commas.

        `server_name` is the name that their certificates must be for, if not that of the address.
        """
        separate = [address.strip() for address in addresses.split(",")]
        return cls([Place(address, open_channel(address, tls, server_name)) for address in separate if address])

    @property
    def count(self) -> int:
        """How many solves may be under way at the same time."""
        return sum(place.replicas for place in self._places)

    @property
    def places(self) -> int:
        """How many addresses there are to turn to."""
        return len(self._places)

    @asynccontextmanager
    async def turn(self, besides: Collection[Place] = ()) -> AsyncIterator[Place]:
        """Whose turn it is, for one call; waits until there is one with nothing to do. Not one of `besides`."""
        async with self._freed:
            while (place := self._choose(besides)) is None:
                await self._freed.wait()
            place.asked += 1
        try:
            yield place
        finally:
            place.asked -= 1
            async with self._freed:
                self._freed.notify_all()

    def _choose(self, besides: Collection[Place]) -> Place | None:
        now = asyncio.get_running_loop().time()
        in_turn = self._places[self._next :] + self._places[: self._next]
        idle = [place for place in in_turn if place.idle and place not in besides]
        if not idle:
            return None
        chosen = next((place for place in idle if place.shunned_until <= now), idle[0])
        self._next = (self._places.index(chosen) + 1) % len(self._places)
        return chosen

    @staticmethod
    def shun(place: Place, seconds: float = SHUNNED_SECONDS) -> None:
        """It could not be reached, or did not answer: others are asked first for so long."""
        place.shunned_until = asyncio.get_running_loop().time() + seconds

    async def follow(self, told: Callable[[int], None]) -> None:
        """Tell how many replicas there are, now and whenever that changes, for ever."""
        told(self.count)
        while any(place.address.startswith("dns:") for place in self._places):
            before = self.count
            for place in self._places:
                if place.address.startswith("dns:"):
                    place.replicas = await _behind(place.address) or place.replicas
            if self.count != before:
                _log.info("placement's replicas", count=self.count)
                told(self.count)
                async with self._freed:
                    self._freed.notify_all()
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Close all connections."""
        for place in self._places:
            await place.channel.close()


async def _behind(address: str) -> int:
    """How many addresses a name stands for; 0: that is not known now."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError as error:
        _log.warning("placement's name cannot be looked up", address=address, reason=str(error))
        return 0
    by_family = Counter(family for family, _ in {(family, where[0]) for family, *_, where in found})
    return max(by_family.values(), default=0)  # a replica may have an address of each family
