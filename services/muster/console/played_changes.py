"""Changes with which gangs on open pages would start now: each was played by the service forecast.

One gang is played at a time, for all readers, and only while its page is open.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from muster.console.forecast import ForecastClient, NoForecast, Remedies
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase

AGAIN_SECONDS: Final = 60.0
"""Age at which an answer is found anew: pods end, and others are submitted."""
_CHANGED_SECONDS: Final = 15.0
"""The same for a gang that has changed since."""
_OPEN_SECONDS: Final = 15.0
"""A page asks more often than this while it is open."""
_SHARE: Final = 0.3
"""Share of time for which the service forecast may be asked: it answers questions of people, too."""
_MAX_KEPT: Final = 200
"""Gangs of which the answer is kept, and that wait to be played: as many as there may be open pages (I11)."""
_WAITING: Final = frozenset({Phase.PHASE_QUEUED, Phase.PHASE_SOLVING, Phase.PHASE_WAITING})


class Played(Struct, frozen=True):
    """Changes found for a gang, or why none were looked for."""

    version: int
    """Of the gang's row, before it was played."""
    at: float
    """When it was found, on the loop's clock."""
    remedies: Remedies | None
    failure: str = ""
    """Why there is no answer."""


class PlayedChanges:
    """The last answers by gang; the one that was shown least recently is dropped first."""

    def __init__(self, client: ForecastClient, touch: Callable[[], None]) -> None:
        """`touch` is called after every answer."""
        self._client, self._touch = client, touch
        self._found: OrderedDict[str, Played] = OrderedDict()
        self._wanted: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """When the page of a gang last asked, and the version of its row then, in the order in which they are played.
        """
        self._asked = asyncio.Event()

    def of(self, gang: Gang, version: int) -> Played | None:
        """The last answer for a gang that waits; if it is out of date, the gang is played again. `version`: of its
        row. None: nothing is known yet.
        """
        now = asyncio.get_running_loop().time()
        found = self._found.get(gang.id)
        if found is not None:
            self._found.move_to_end(gang.id)
            age = now - found.at
            if age < (AGAIN_SECONDS if found.version == version else _CHANGED_SECONDS):
                return found
        if gang.id in self._wanted or len(self._wanted) < _MAX_KEPT:
            self._wanted[gang.id] = now, version
            self._asked.set()
        return found

    async def run(self) -> None:
        """Play what open pages ask for, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._wanted:
                gang, (asked_at, version) = self._wanted.popitem(last=False)
                began = loop.time()
                if began - asked_at > _OPEN_SECONDS:
                    continue
                self._found[gang] = await self._play(gang, version)
                self._found.move_to_end(gang)
                while len(self._found) > _MAX_KEPT:
                    self._found.popitem(last=False)
                self._touch()
                await asyncio.sleep((loop.time() - began) * (1 / _SHARE - 1))

    async def _play(self, gang: str, version: int) -> Played:
        loop = asyncio.get_running_loop()
        try:
            remedies = await self._client.remedies(gang)
        except NoForecast as error:
            return Played(version, loop.time(), None, str(error))
        return Played(version, loop.time(), remedies)


def waits_for_its_start(gang: Gang) -> bool:
    """The gang is complete, and none of its members runs: changes are played for it."""
    return gang.phase in _WAITING and not gang.bound and gang.members > 0
