"""Decodes lists and watches in one pass; objects that do not fit their type are read as far as possible."""

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
    """A watch event of type ERROR; it ends the watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Bookmark(Struct, frozen=True):
    """A watch event of type BOOKMARK: all changes up to this revision have been sent."""

    revision: int


class Page(Struct, Generic[T], frozen=True):
    """A page of a list. `continue_token` requests the next page, empty at the end; `revision` is the list's."""

    items: list[T]
    revision: int
    continue_token: str


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = field(name="continue", default="")


class _List(Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _Event(Struct, Generic[T]):
    type: str
    object: T


class _Bookmark(Struct):
    metadata: ObjectMeta


class WatchDecoder(Generic[T]):
    """Decodes lists and watches of one kind.

    Raises BadObject or BadResourceVersion for content that violates the API's contract.
    """

    def __init__(self, resource: ApiResource[T]) -> None:
        kind: Any = resource.type
        self._events = msgspec.json.Decoder(_Event[kind])
        self._lists = msgspec.json.Decoder(_List[kind])
        self._decode = resource.decode

    def page(self, body: bytes) -> Page[T]:
        """Decode a page of a list. Items that are not objects are logged and skipped."""
        try:
            decoded: Any = self._lists.decode(body)
            items: list[T] = decoded.items or []
        except (msgspec.DecodeError, UnicodeDecodeError):
            decoded = _read(body, _List[Raw], "a list")
            items = self._readable_items(decoded.items or [])
        metadata: _ListMeta = decoded.metadata
        return Page(items, ObjectMeta(resource_version=metadata.resource_version).revision, metadata.continue_token)

    def event(self, line: bytes) -> T | Removed | Bookmark | WatchStatus:
        """Decode a line of a watch."""
        try:
            event: Any = self._events.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._decode_leniently(line)
        kind = event.type
        if kind in ("ADDED", "MODIFIED"):
            return event.object  # type: ignore[no-any-return]
        if kind == "DELETED":
            return Removed(event.object.metadata.uid, event.object.metadata.revision)
        return self._decode_leniently(line)

    def _decode_leniently(self, line: bytes) -> T | Removed | Bookmark | WatchStatus:
        event = _read(line, _Event[Raw], "a watch event")
        match event.type:
            case "ADDED" | "MODIFIED":
                return self._decode(event.object)
            case "DELETED":
                metadata: ObjectMeta = self._decode(event.object).metadata  # type: ignore[attr-defined]
                return Removed(metadata.uid, metadata.revision)
            case "BOOKMARK":
                return Bookmark(_read(event.object, _Bookmark, "a bookmark").metadata.revision)
            case "ERROR":
                return _read(event.object, WatchStatus, "a status")
            case _:
                raise BadObject(f"unknown type of watch event: {quoted(event.type)}")

    def _readable_items(self, raw_items: list[Raw]) -> list[T]:
        items = []
        for raw in raw_items:
            try:
                items.append(self._decode(raw))
            except BadObject as error:
                _log.error("list_item_skipped", error=str(error))
        return items


def _read(data: bytes | Raw, kind: type[_S], noun: str) -> _S:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = quoted(bytes(data)[:256].decode(errors="replace"))
        raise BadObject(f"not {noun} ({error}): {shown}") from error
