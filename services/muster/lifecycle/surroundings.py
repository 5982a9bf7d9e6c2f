"""What a controller of lifecycle is, and what it is given."""

from typing import Protocol

from msgspec import Struct

from muster.kube.session import KubeSession
from muster.lifecycle.election import Leadership
from muster.lifecycle.settings import Settings
from muster.lifecycle.watches import Watches


class Controller(Protocol):
    """Keeps objects of one sort as they should be.

    It is made in every replica and says what it follows (`Surroundings.watches`) when it is made. Everything that it
    writes, it writes only while `Surroundings.leadership.leads` (a WorkQueue sees to that), unless all replicas may.
    """

    async def run(self) -> None:
        """Until cancelled. It is started before anything has been seen: await `watches.complete` where that matters."""


class Surroundings(Struct, frozen=True):
    """What a controller is given."""

    session: KubeSession
    watches: Watches
    leadership: Leadership
    settings: Settings
