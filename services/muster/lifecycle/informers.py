"""Shared informers: each kind is watched once, for all controllers that need it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from muster.kube.api_resources import ApiResource
from muster.kube.informer import Informer, InformerOptions
from muster.kube.malformed_objects import MalformedObjects, Unreadable, rejected
from muster.kube.object_changes import ObjectChanges
from muster.kube.session import KubeSession

T = TypeVar("T")

_Handler = Callable[[ObjectChanges[Any]], None]


class SharedInformers:
    """One informer per kind, and its handlers. All handlers are added before `run`."""

    def __init__(self, session: KubeSession, pace: InformerOptions = InformerOptions()) -> None:  # noqa: B008 (a frozen value)
        self.synced = asyncio.Event()
        """Set, for good, once all kinds have been listed and all handlers called with the lists."""
        self._session = session
        self._pace = pace
        self._reporters: list[Callable[[ApiResource[Any], Unreadable], None]] = []
        self._handlers: dict[str, tuple[ApiResource[Any], list[_Handler]]] = {}

    def add_handler(self, resource: ApiResource[T], handler: Callable[[ObjectChanges[T]], None]) -> None:
        """Calls the handler with all changes of a kind, in order. The handler must not block.

        If it raises, it is called again with each object alone, and the object for which it raises is skipped.
        """
        known, handlers = self._handlers.setdefault(resource.kind, (resource, []))
        if known != resource:
            raise ValueError(f"{resource.kind} is watched already, by another path or as another type: {known.path}")
        handlers.append(handler)

    def report_malformed(self, reporter: Callable[[ApiResource[Any], Unreadable], None]) -> None:
        """Calls `reporter` with each object that cannot be read completely, at each list or change of it."""
        self._reporters.append(reporter)

    def report(self, resource: ApiResource[Any], found: Unreadable) -> None:
        """Reports an object that could not be read completely."""
        for reporter in self._reporters:
            reporter(resource, found)

    async def run(self) -> None:
        """Runs all informers until cancelled."""
        informers = [self._informer(resource, handlers) for resource, handlers in self._handlers.values()]
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run(), name=f"informer {informer.resource.kind}")
            for informer in informers:
                await informer.complete.wait()
            self.synced.set()

    def _informer(self, resource: ApiResource[Any], handlers: list[_Handler]) -> Informer[Any]:
        report = partial(self.report, resource)
        malformed = MalformedObjects(resource.kind, report)

        def sink(changes: ObjectChanges[Any]) -> None:
            for handler in handlers:
                call_handler(handler, changes, malformed)

        return Informer(self._session, resource, sink, self._pace, report)


def call_handler(handler: _Handler, changes: ObjectChanges[Any], malformed: MalformedObjects) -> None:
    """Calls a handler; an object for which it raises must not hide the others, nor end the process."""
    try:
        handler(changes)
        return
    except Exception as error:
        if not changes.items:
            malformed.note(rejected(None, error), effect="the revision is not noted", error=error)
            return
    for item in changes.items:
        try:
            handler(ObjectChanges(changes.kind, [item]))
        except Exception as error:
            malformed.note(rejected(item, error), effect="the object is skipped", error=error)
    if changes.through:
        call_handler(handler, ObjectChanges(changes.kind, [], changes.through), malformed)
