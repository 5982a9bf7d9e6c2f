"""Content negotiation: responses as objects or as tables."""

import time
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from muster.localcluster.apiserver.clock import age
from muster.localcluster.apiserver.kinds import AGE_COLUMN, NAME_COLUMN, Kind, TableForm
from muster.localcluster.apiserver.status import StatusError
from muster.localcluster.apiserver.store import Object, Record

_encode: Final = msgspec.json.Encoder().encode
_JSON_LIKE: Final = ("", "*/*", "application/json", "application/*")


class Representation(Protocol):
    """Encodes one object, a list, and the object of a watch event."""

    def one(self, record: Record) -> bytes: ...

    def many(self, records: Iterable[Record], metadata: Object) -> bytes: ...

    def event(self, record: Record) -> bytes: ...


def representation(kind: Kind, accept: str, include_object: str) -> Representation:
    """Form that the Accept header requests. Raises StatusError 406 if none is supported."""
    for offer in accept.split(","):
        media_type, *parameters = (part.strip() for part in offer.split(";"))
        if media_type not in _JSON_LIKE:
            continue
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        match options.get("as"):
            case None:
                return ObjectForm(kind)
            case "Table":
                return TableOutput(kind, f"meta.k8s.io/{options.get('v', 'v1')}", include_object or "Metadata")
    only = "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io"
    raise StatusError(406, only)


class ObjectForm:
    """Objects, converted to the requested version."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._prefix = _encode({"kind": kind.name, "apiVersion": kind.api_version})[:-1] + b","

    def one(self, record: Record) -> bytes:
        convert = self._kind.from_stored
        return record.encoded if convert is None else _encode(convert(record.object))

    event = one

    def many(self, records: Iterable[Record], metadata: Object) -> bytes:
        kind = self._kind
        items = [self.one(record) for record in records]
        if not kind.custom:  # lists of built-in kinds do not repeat the kind in every item
            cut, prefix = len(self._prefix), self._prefix
            items = [b"{" + item[cut:] if item.startswith(prefix) else item for item in items]
        head = _encode({"kind": kind.list_name, "apiVersion": kind.api_version, "metadata": metadata})[:-1]
        return b'%b,"items":[%b]}\n' % (head, b",".join(items))


class TableOutput:
    """Rows of a table, with the metadata of each object."""

    def __init__(self, kind: Kind, version: str, include_object: str) -> None:
        self._kind, self._version, self._include = kind, version, include_object
        self._form = kind.table or TableForm(
            (NAME_COLUMN, AGE_COLUMN),
            lambda obj, now: [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"), now)],
        )
        self._definitions: list[Object] | None = [column.definition() for column in self._form.columns]

    def one(self, record: Record) -> bytes:
        return self.many([record], {"resourceVersion": str(record.revision)})

    def many(self, records: Iterable[Record], metadata: Object) -> bytes:
        return _encode(self._table(records, metadata))

    def event(self, record: Record) -> bytes:
        encoded = _encode(self._table([record], {"resourceVersion": str(record.revision)}))
        self._definitions = None  # a watch sends its columns once
        return encoded

    def _table(self, records: Iterable[Record], metadata: Object) -> Object:
        now = time.time()
        table: Object = {"kind": "Table", "apiVersion": self._version, "metadata": metadata}
        table["columnDefinitions"] = self._definitions if self._definitions is not None else None
        table["rows"] = [self._row(record, now) for record in records]
        return table

    def _row(self, record: Record, now: float) -> Object:
        convert = self._kind.from_stored
        obj = record.object if convert is None else convert(record.object)
        row: Object = {"cells": self._form.cells(obj, now)}
        match self._include:
            case "Object":
                row["object"] = obj
            case "Metadata":
                row["object"] = _metadata_alone(obj, self._version)
        return row


def _metadata_alone(obj: Object, version: str) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": obj["metadata"]}
