"""Watches PersistentVolumeClaims while Bind calls wait for their volumes, instead of polling them."""

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

    Callback: TypeAlias = Callable[[PersistentVolumeClaim | None], None]

_POLL_SECONDS: Final = (2.0, 30.0)  # before and after the first complete list


class ClaimWatch:
    """A watch of all claims, from the first subscription until `stop`. Claims are not cached; callbacks end with the
    subscription (I11).
    """

    def __init__(self, session: KubeSession) -> None:
        self._informer = Informer(session, CLAIMS, self._on_changes)
        self._task: asyncio.Task[None] | None = None
        self._callbacks: dict[str, list[Callback]] = {}  # by uid
        self._listed = False

    @property
    def poll_seconds(self) -> float:
        """Time to wait for an update before reading the claim directly."""
        return _POLL_SECONDS[self._listed]

    def subscribe(self, uid: str, callback: "Callback") -> Callable[[], None]:
        """Call `callback` with the claim after every change, and with None after its deletion. Returns the function
        that unsubscribes.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._informer.run())
        self._callbacks.setdefault(uid, []).append(callback)

        def unsubscribe() -> None:
            self._callbacks[uid].remove(callback)
            if not self._callbacks[uid]:
                del self._callbacks[uid]

        return unsubscribe

    async def stop(self) -> None:
        """Stop the watch."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _on_changes(self, changes: ObjectChanges[PersistentVolumeClaim]) -> None:
        self._listed = self._listed or changes.through > 0
        for item in changes.items:
            uid, claim = (item.uid, None) if isinstance(item, Removed) else (item.metadata.uid, item)
            for callback in list(self._callbacks.get(uid, ())):
                callback(claim)
