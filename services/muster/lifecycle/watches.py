"""What lifecycle sees of the cluster: each kind is watched once, whoever of its controllers wants it."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from muster.kube.api_resources import ApiResource
from muster.kube.informer import Informer, Pace
from muster.kube.object_changes import ObjectChanges
from muster.kube.session import KubeSession

T = TypeVar("T")

_Tell = Callable[[ObjectChanges[Any]], None]


class Watches:
    """One informer per kind, with all who follow it. Everybody says what to follow before `run`."""

    def __init__(self, session: KubeSession, pace: Pace = Pace()) -> None:  # noqa: B008 (a frozen value)
        self.complete = asyncio.Event()
        """All kinds have been listed, and everybody was told what there is. It stays set."""
        self._session = session
        self._pace = pace
        self._followers: dict[str, tuple[ApiResource[Any], list[_Tell]]] = {}

    def follow(self, resource: ApiResource[T], tell: Callable[[ObjectChanges[T]], None]) -> None:
        """Have `tell` called with all changes of a kind, in order. It must not block, and raise nothing."""
        known, followers = self._followers.setdefault(resource.kind, (resource, []))
        if known != resource:
            raise ValueError(f"{resource.kind} is followed already, by another path or as another type: {known.path}")
        followers.append(tell)

    async def run(self) -> None:
        """Until cancelled."""
        informers = [self._informer(resource, tells) for resource, tells in self._followers.values()]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run(), name=f"informer {informer.resource.kind}")
            for informer in informers:
                await informer.complete.wait()
            self.complete.set()

    def _informer(self, resource: ApiResource[Any], tells: list[_Tell]) -> Informer[Any]:
        def sink(changes: ObjectChanges[Any]) -> None:
            for tell in tells:
                tell(changes)

        return Informer(self._session, resource, sink, self._pace)
