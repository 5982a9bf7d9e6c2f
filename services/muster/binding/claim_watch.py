"""Tells what becomes of claims while somebody waits for them, so that nobody has to ask again and again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from muster.kube.api_resources import CLAIMS
from muster.kube.informer import Informer
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.session import KubeSession
from muster.kube.volume_facts import PersistentVolumeClaim

if TYPE_CHECKING:
    from typing import TypeAlias

    Tell: TypeAlias = Callable[[PersistentVolumeClaim | None], None]

_LOOK_SECONDS: Final = (2.0, 30.0)


class ClaimWatch:
    """One watch of all claims, from the first one that is waited for until `stop`. Nothing of them is kept."""

    def __init__(self, session: KubeSession) -> None:
        self._informer = Informer(session, CLAIMS, self._take_in)
        self._task: asyncio.Task[None] | None = None
        self._tells: dict[str, list[Tell]] = {}  # by uid
        self._heard = False

    @property
    def look_seconds(self) -> float:
        """After so long it is better to look at a claim than to go on waiting to be told."""
        return _LOOK_SECONDS[self._heard]

    def follow(self, uid: str, tell: "Tell") -> Callable[[], None]:
        """Call `tell` with the claim at every change from now on, with None when it is gone. Returns what ends it."""
        if self._task is None:
            self._task = asyncio.create_task(self._informer.run())
        self._tells.setdefault(uid, []).append(tell)

        def end() -> None:
            self._tells[uid].remove(tell)
            if not self._tells[uid]:
                del self._tells[uid]

        return end

    async def stop(self) -> None:
        """Tell nothing more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _take_in(self, changes: ObjectChanges[PersistentVolumeClaim]) -> None:
        self._heard = self._heard or changes.through > 0
        for item in changes.items:
            uid, claim = (item.uid, None) if isinstance(item, Removed) else (item.metadata.uid, item)
            for tell in list(self._tells.get(uid, ())):
                tell(claim)
