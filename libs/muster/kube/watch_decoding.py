"""Decodes lists and watches in one pass; objects that do not fit their type are read as far as possible.

An object that cannot be read at all, because it is not an object, or has no name, uid or usable resourceVersion, is
returned as Unreadable. It must not stop the stream of the others.
"""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.quoting import quoted
from muster.kube.api_resources import ApiResource
from muster.kube.json_repair import repaired
from muster.kube.malformed_objects import MalformedObjects, Reason, Unreadable
from muster.kube.object_changes import Removed
from muster.kube.objects import UNREADABLE, BadObject, BadResourceVersion, ObjectMeta

T = TypeVar("T")
_S = TypeVar("_S", bound=Struct)


class WatchStatus(Struct, frozen=True):
    """A watch event of type ERROR; it ends the watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Bookmark(Struct, frozen=True):
    """A watch event of type BOOKMARK: all changes up to this revision have been sent."""

    revision: int


class Page(Struct, frozen=True):
    """A page of a list, with its items as JSON for `WatchDecoder.objects`. `continue_token` requests the next page, and
    is empty at the end; `revision` is the list's.
    """

    items: list[Raw]
    revision: int
    continue_token: str


class UnusualPage(RuntimeError):
    """A page that must be repaired."""


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = field(name="continue", default="")


class _List(Struct):
    metadata: _ListMeta
    items: list[Raw] | None = None


class _Event(Struct, Generic[T]):
    type: str
    object: T


class _Bookmark(Struct):
    metadata: ObjectMeta


_OTHERS_USED = "the other fields are used"
_lists = msgspec.json.Decoder(_List)


class WatchDecoder(Generic[T]):
    """Decodes lists and watches of one kind.

    Raises BadObject or BadResourceVersion for content that violates the API's contract as a whole.
    """

    def __init__(self, resource: ApiResource[T], malformed: MalformedObjects) -> None:
        """`malformed` notes objects that are read without some of their fields."""
        kind: Any = resource.type
        self._objects = msgspec.json.Decoder(resource.type)
        self._events = msgspec.json.Decoder(_Event[kind])
        self._decode = resource.decode
        self._limit = resource.limit
        self._malformed = malformed

    @staticmethod
    def page(body: bytes, *, repair: bool = True) -> Page:
        """Divide a page of a list into its items, which takes 1 ms per MB, and 10 ms if the JSON must be repaired (see
        json_repair). Without `repair`, raises UnusualPage instead.
        """
        try:
            listed = _lists.decode(body)
        except UNREADABLE as error:
            if not repair:
                raise UnusualPage(str(error)) from error
            listed = _read(repaired(body), _List, "a list")
        revision = ObjectMeta(resource_version=listed.metadata.resource_version).revision
        return Page(listed.items or [], revision, listed.metadata.continue_token)

    def objects(self, items: Iterable[Raw]) -> tuple[list[T], list[Unreadable]]:
        """Decode items of a page: the objects, and those that cannot be read."""
        objects: list[T] = []
        unreadable: list[Unreadable] = []
        for item in items:
            checked = _identified(self._limited(self._listed(item)))
            if type(checked) is Unreadable:
                unreadable.append(checked)
            else:
                objects.append(checked)
        return objects, unreadable

    def _listed(self, item: Raw) -> T | Unreadable:
        try:
            return self._objects.decode(item)
        except UNREADABLE:
            return self._object(Raw(repaired(bytes(item))))

    def event(self, line: bytes) -> T | Removed | Bookmark | WatchStatus | Unreadable:
        """Decode a line of a watch."""
        try:
            event: Any = self._events.decode(line)
        except UNREADABLE:
            return self._decode_leniently(line)
        kind = event.type
        if kind in ("ADDED", "MODIFIED"):
            return _identified(self._limited(event.object))  # type: ignore[no-any-return]
        if kind == "DELETED":
            return _removed(event.object)
        return self._decode_leniently(line)

    def _decode_leniently(self, line: bytes) -> T | Removed | Bookmark | WatchStatus | Unreadable:
        event = _read(repaired(line), _Event[Raw], "a watch event")
        match event.type:
            case "ADDED" | "MODIFIED":
                return _identified(self._object(event.object))  # type: ignore[no-any-return]
            case "DELETED":
                return _removed(self._object(event.object))
            case "BOOKMARK":
                return Bookmark(_read(event.object, _Bookmark, "a bookmark").metadata.revision)
            case "ERROR":
                return _read(event.object, WatchStatus, "a status")
            case _:
                raise BadObject(f"unknown type of watch event: {quoted(event.type)}")

    def _limited(self, item: Any) -> Any:
        if self._limit is None or type(item) is Unreadable:
            return item
        limited: Any = self._limit(item)
        if limited is not item:
            self._malformed.note(_unreadable(Reason.FIELDS, item.metadata, limited.problem), effect=_OTHERS_USED)
        return limited

    def _object(self, raw: Raw) -> T | Unreadable:
        try:
            return self._objects.decode(raw)
        except UNREADABLE as error:
            problem = str(error)
        try:
            item: Any = self._decode(raw)
        except BadObject as error:
            return Unreadable(Reason.NOT_AN_OBJECT, str(error))
        problem = getattr(item, "problem", "") or problem
        self._malformed.note(_unreadable(Reason.FIELDS, item.metadata, problem), effect=_OTHERS_USED)
        return item  # type: ignore[no-any-return]


def _identified(item: Any) -> Any:
    """The object, or Unreadable if it cannot be told from others or ordered."""
    if type(item) is Unreadable:
        return item
    metadata: ObjectMeta = item.metadata
    if not metadata.uid or not metadata.name:
        missing = "uid" if metadata.name else "name"
        return _unreadable(Reason.IDENTITY, metadata, f"metadata.{missing} is missing or not a string")
    try:
        metadata.revision  # noqa: B018 (raises)
    except BadResourceVersion as error:
        return _unreadable(Reason.REVISION, metadata, str(error))
    return item


def _unreadable(reason: Reason, metadata: ObjectMeta, message: str) -> Unreadable:
    return Unreadable(reason, message, metadata.uid, metadata.namespace, metadata.name)


def _removed(item: Any) -> Removed:
    """The removal of an object. Raises BadObject if it is not known of which."""
    if type(item) is Unreadable:
        raise BadObject(f"an object that cannot be read was deleted: {item.message}")
    metadata: ObjectMeta = item.metadata
    if not metadata.uid:
        raise BadObject(f"an object without uid was deleted: {quoted(f'{metadata.namespace}/{metadata.name}')}")
    try:
        return Removed(metadata.uid, metadata.revision)
    except BadResourceVersion:
        return Removed(metadata.uid)


def _read(data: bytes | Raw, kind: type[_S], noun: str) -> _S:
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        shown = quoted(bytes(data)[:256].decode(errors="replace"))
        raise BadObject(f"not {noun} ({error}): {shown}") from error
