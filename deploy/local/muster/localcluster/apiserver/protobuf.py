"""Decodes request bodies in Kubernetes' protobuf form, which newer kubectl sends for objects created from flags.

Supports the messages and fields of the table: for `kubectl auth can-i`, `kubectl drain`, and `kubectl create` of
namespaces, of what belongs to them, and of Secrets. Everything else is created from manifests, which kubectl sends as
JSON. Responses are always JSON, which those clients accept.
"""

import base64
from collections.abc import Iterator
from typing import Any, Final

from muster.localcluster.apiserver.store import Object

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\0"

_FIELDS: Final[dict[str, str]] = {
    "TypeMeta": "1 apiVersion, 2 kind",
    "Unknown": "1 typeMeta TypeMeta, 2 raw raw, 3 contentEncoding, 4 contentType",
    "ObjectMeta": "1 name, 2 generateName, 3 namespace, 4 selfLink, 5 uid, 6 resourceVersion, 7 generation int, "
    "8 creationTimestamp Time, 11 labels {str}, 12 annotations {str}, 14 finalizers [str]",
    "DeleteOptions": "1 gracePeriodSeconds int, 2 preconditions Preconditions, 3 orphanDependents bool, "
    "4 propagationPolicy, 5 dryRun [str]",
    "Preconditions": "1 uid, 2 resourceVersion",
    "Eviction": "1 metadata ObjectMeta, 2 deleteOptions DeleteOptions",
    "Namespace": "1 metadata ObjectMeta, 2 spec Any, 3 status Any",
    "ConfigMap": "1 metadata ObjectMeta, 2 data {str}, 4 immutable bool",
    "Secret": "1 metadata ObjectMeta, 2 data {bytes}, 3 type, 5 immutable bool",
    "ResourceQuota": "1 metadata ObjectMeta, 2 spec ResourceQuotaSpec, 3 status Any",
    "ResourceQuotaSpec": "1 hard {Quantity}, 2 scopes [str]",
    "Quantity": "1 string",
    "PriorityClass": "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, 4 description, 5 preemptionPolicy",
    "SelfSubjectAccessReview": "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status Any",
    "AccessReviewSpec": "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes",
    "ResourceAttributes": "1 namespace, 2 verb, 3 group, 4 version, 5 resource, 6 subresource, 7 name",
    "NonResourceAttributes": "1 path, 2 verb",
}
"""Fields by number. The type is a message, int, bool or bytes; default string; [] is a list, {} a map from strings.

`Any` is a message that is ignored: the server sets the field itself.
"""


class UnknownField(ValueError):
    """Field of a message that is not in the table."""


def decode_protobuf(body: bytes) -> Object:
    """Decode the object of a request body. Raises ValueError."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not start with the magic number of Kubernetes' protobuf format")
    envelope = _message("Unknown", body[len(_MAGIC) :])
    kind = envelope.get("typeMeta", {}).get("kind", "")
    if kind not in _FIELDS:
        raise UnknownField(f"{kind} is not known in protobuf form; send JSON")
    return {**envelope["typeMeta"], **_message(kind, envelope.get("raw", b""))}


def _message(name: str, content: bytes) -> Object:
    fields = _table(name)
    found: Object = {}
    for number, value in _wire(content):
        if number not in fields:
            raise UnknownField(f"field {number} of {name} is not known in protobuf form; send JSON")
        field, form = fields[number]
        if form.startswith("["):
            found.setdefault(field, []).append(_value(form[1:-1], value))
        elif form.startswith("{"):
            entry = dict(_wire(value))
            found.setdefault(field, {})[entry.get(1, b"").decode()] = _value(form[1:-1], entry.get(2, b""))
        elif (decoded := _value(form, value)) not in ("", {}, False, None):
            found[field] = decoded
    return found


def _value(form: str, value: Any) -> Any:
    match form:
        case "str":
            return value.decode()
        case "raw":
            return value
        case "bytes":
            return base64.b64encode(value).decode()
        case "int":
            return value - (1 << 64) if value >> 63 else value
        case "bool":
            return bool(value)
        case "Any" | "Time":
            return None
    message = _message(form, value)
    if form == "Quantity":
        return message.get("string", "0")
    return message


def _table(name: str) -> dict[int, tuple[str, str]]:
    entries = (entry.split() for entry in _FIELDS[name].split(", "))
    return {int(number): (field, form[0] if form else "str") for number, field, *form in entries}


def _wire(content: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and raw values."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        match tag & 7:
            case 0:
                value: Any
                value, at = _varint(content, at)
            case 2:
                length, at = _varint(content, at)
                value, at = content[at : at + length], at + length
            case other:
                raise ValueError(f"wire type {other} is not used by Kubernetes")
        yield tag >> 3, value


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if at >= len(content):
            raise ValueError("it ends in the middle of a number")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
