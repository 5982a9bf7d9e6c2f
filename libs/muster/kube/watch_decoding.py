"""Bytes of lists and watches become objects in one pass; what does not fit its type is read as far as that goes."""

from typing import Any, Generic, TypeVar

import msgspec
import structlog
from msgspec import Raw, Struct, field

from muster.gangs.quoting import quoted
from muster.kube.api_resources import ApiResource
from muster.kube.object_changes import Removed
from muster.kube.objects import BadObject, ObjectMeta

T = TypeVar("T")
_S = TypeVar("_S", bound=Struct)

_log = structlog.get_logger(__name__)


class WatchStatus(Struct, frozen=True):
    """An error that the API server sends instead of an object; it ends the watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Bookmark(Struct, frozen=True):
    """Everything that happened up to this revision has been told."""

    revision: int


class Page(Struct, Generic[T], frozen=True):
    """Part of a list. `proceed` is the token of the next part, empty at the end; `revision` is the whole list's."""

    items: list[T]
    revision: int
    proceed: str


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    proceed: str = field(name="continue", default="")


class _List(Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _Event(Struct, Generic[T]):
    type: str
    object: T


class _Marked(Struct):
    metadata: ObjectMeta


class Decoding(Generic[T]):
    """Decodes lists and watches of one kind.

    Raises BadObject or BadResourceVersion for what is not what the API promises.
    """

    def __init__(self, resource: ApiResource[T]) -> None:
        kind: Any = resource.type
        self._events = msgspec.json.Decoder(_Event[kind])
        self._lists = msgspec.json.Decoder(_List[kind])
        self._decode = resource.decode

    def page(self, body: bytes) -> Page[T]:
        """A page of a list. An item that is no object at all is logged and left out."""
        try:
            decoded: Any = self._lists.decode(body)
            items: list[T] = decoded.items or []
        except (msgspec.DecodeError, UnicodeDecodeError):
            decoded = _read(body, _List[Raw], "a list")
            items = self._readable(decoded.items or [])
        metadata: _ListMeta = decoded.metadata
        return Page(items, ObjectMeta(resource_version=metadata.resource_version).revision, metadata.proceed)

    def event(self, line: bytes) -> T | Removed | Bookmark | WatchStatus:
        """A line of a watch."""
        try:
            event: Any = self._events.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._odd_event(line)
        kind = event.type
        if kind in ("ADDED", "MODIFIED"):
            return event.object  # type: ignore[no-any-return]
        if kind == "DELETED":
            return Removed(event.object.metadata.uid, event.object.metadata.revision)
        return self._odd_event(line)

    def _odd_event(self, line: bytes) -> T | Removed | Bookmark | WatchStatus:
        event = _read(line, _Event[Raw], "a watch event")
        match event.type:
            case "ADDED" | "MODIFIED":
                return self._decode(event.object)
            case "DELETED":
                metadata: ObjectMeta = self._decode(event.object).metadata  # type: ignore[attr-defined]
                return Removed(metadata.uid, metadata.revision)
            case "BOOKMARK":
                return Bookmark(_read(event.object, _Marked, "a bookmark").metadata.revision)
            case "ERROR":
                return _read(event.object, WatchStatus, "a status")
            case _:
                raise BadObject(f"unknown type of watch event: {quoted(event.type)}")

    def _readable(self, raw_items: list[Raw]) -> list[T]:
        items = []
        for raw in raw_items:
            try:
                items.append(self._decode(raw))
            except BadObject as error:
                _log.error("an item of a list is left out", error=str(error))
        return items


def _read(data: bytes | Raw, kind: type[_S], what: str) -> _S:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = quoted(bytes(data)[:256].decode(errors="replace"))
        raise BadObject(f"not {what} ({error}): {shown}") from error
