"""The verbs get and list, with pages that are consistent at one revision."""

import base64
from collections import OrderedDict
from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.content_negotiation import representation
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.selectors import Selection, parse_fields, parse_labels
from muster.localcluster.apiserver.status import StatusError, bad_request, expired
from muster.localcluster.apiserver.store import Object, Record, in_namespace

_MAX_PAGED_LISTS: Final = 64
_PageKey = tuple[str, int, Selection]  # collection, revision, what was selected


class _Position(msgspec.Struct):
    """Continue token of a paged list."""

    v: str
    rv: int
    start: str


def selection_of(call: Call) -> Selection:
    """Selection of a request's label and field selectors. Raises StatusError 400."""
    kind, query = call.target.kind, call.query
    fields = parse_fields(query.get("fieldSelector", ""), kind.selectable, kind.stored_field)
    if call.target.name is not None:
        fields = (*fields, *parse_fields(f"metadata.name={call.target.name}", (), str))
    return Selection(call.target.namespace, parse_labels(query.get("labelSelector", "")), fields)


class Reader:
    """Handles get and list."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._paged: OrderedDict[_PageKey, tuple[Record, ...]] = OrderedDict()
        """Snapshots of paged lists; a token whose snapshot was evicted is expired."""

    def forget_pages(self) -> None:
        """Expire all continue tokens, as a compaction does."""
        self._paged.clear()

    def get(self, call: Call) -> bytes:
        target = call.target
        assert target.name is not None
        form = representation(target.kind, call.accept, call.query.get("includeObject", ""))
        return form.one(self._cluster.record(target.kind, target.namespace, target.name))

    def list(self, call: Call) -> bytes:
        """Raises StatusError 400, 406, 410, 422, 504."""
        kind = call.target.kind
        form = representation(kind, call.accept, call.query.get("includeObject", ""))
        selection = selection_of(call)
        limit = call.number("limit") or 0
        if token := call.query.get("continue"):
            revision, records = self._resumed(kind.collection, selection, token)
        else:
            revision = self._cluster.store.revision
            _check_version(call, revision)
            collection = self._cluster.store.collection(kind.collection)
            records = tuple(sorted(in_namespace(collection.records.values(), selection.namespace), key=_key_of))
        metadata: Object = {"resourceVersion": str(revision)}
        if not selection.everything:
            records = tuple(record for record in records if selection.matches(record.object))
        if limit and len(records) > limit:
            metadata["continue"] = self._save_page((kind.collection, revision, selection), records, limit)
            if not selection.labels and not selection.fields:
                metadata["remainingItemCount"] = len(records) - limit
            records = records[:limit]
        return form.many(records, metadata)

    def _save_page(self, key: _PageKey, records: tuple[Record, ...], limit: int) -> str:
        if key not in self._paged:
            self._paged[key] = records
            if len(self._paged) > _MAX_PAGED_LISTS:
                self._paged.popitem(last=False)
        return _token(key[1], records[limit - 1].key)

    def _resumed(self, collection: str, selection: Selection, token: str) -> tuple[int, tuple[Record, ...]]:
        position = _position(token)
        records = self._paged.get((collection, position.rv, selection))
        if records is None:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        after = position.start.rstrip("\0")
        return position.rv, tuple(record for record in records if record.key > after)


def _check_version(call: Call, current: int) -> None:
    """Reject a resource version of the future; any other list is at the current one."""
    revision = parse_revision(call.query.get("resourceVersion", ""))
    if revision > current:
        raise too_large(revision, current)


def parse_revision(text: str) -> int:
    """Parse a resource version; 0 if there is none. Raises StatusError 400."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        detail = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: {detail}")
    return int(text)


def too_large(requested: int, current: int) -> StatusError:
    """504 for a resource version of the future, which the client has from another server."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(504, message, details={"causes": [cause]}, retry_after_seconds=1)


def _token(revision: int, last_key: str) -> str:
    position: Any = {"v": "meta.k8s.io/v1", "rv": revision, "start": f"{last_key}\0"}
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def _position(token: str) -> _Position:
    try:
        padded = token + "=" * (-len(token) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Position)
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _key_of(record: Record) -> str:
    return record.key
