"""The interface of lifecycle's controllers, and the context in which they run."""

from typing import Protocol

from msgspec import Struct

from muster.kube.session import KubeSession
from muster.lifecycle.election import Leadership
from muster.lifecycle.informers import SharedInformers
from muster.lifecycle.settings import Settings


class Controller(Protocol):
    """Reconciles objects of one kind.

    Every replica creates every controller. A controller adds its handlers to `ControllerContext.informers` when it is
    created. It writes only while `ControllerContext.leadership.leads`, which a WorkQueue ensures, unless all replicas
    may write.
    """

    async def run(self) -> None:
        """Runs until cancelled. Starts before the informers have synced: await `informers.synced` if that matters."""


class ControllerContext(Struct, frozen=True):
    """Everything that a controller is created with."""

    session: KubeSession
    informers: SharedInformers
    leadership: Leadership
    settings: Settings
