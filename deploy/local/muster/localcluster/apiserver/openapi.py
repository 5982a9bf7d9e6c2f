"""OpenAPI documents with the parts that kubectl reads: which resources support dryRun and fieldValidation.

They do not describe the types of built-in kinds: clients then leave validation to the server. They do not list
strategic merge among the patch types, so that `kubectl apply` uses its own schemas of built-in kinds. Version 2 is in
the protobuf form that kubectl requests (Document of gnostic's OpenAPIv2.proto), version 3 in JSON with the schemas of
custom kinds (for `kubectl explain`).
"""

from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.kinds import Kind, Kinds
from muster.localcluster.apiserver.store import Object

PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Media type of the response. Clients request it with "@" in place of the dot before v1.0, which is invalid."""

_TITLE, _VERSION = "Kubernetes", "v1.33.0"
_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json")


def document_v2(kinds: Kinds) -> bytes:
    """OpenAPI v2 document in protobuf."""
    paths = b"".join(_field(2, _field(1, _path(kind).encode()) + _field(2, _item_v2(kind))) for kind in _all(kinds))
    information = _field(1, _TITLE.encode()) + _field(2, _VERSION.encode())
    return _field(1, b"2.0") + _field(2, information) + _field(8, paths) + _field(9, b"")


def index_v3(kinds: Kinds) -> bytes:
    """Index of the OpenAPI v3 documents, one per group and version."""
    paths = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            # The URL has a hash of the document, since clients cache it forever.
            digest = f"{abs(hash(document_v3(kinds, group, version))):x}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return msgspec.json.encode({"paths": paths})


def document_v3(kinds: Kinds, group: str, version: str) -> bytes | None:
    """OpenAPI v3 document of a group and version; None if there is none."""
    served = kinds.of(group, version)
    if not served:
        return None
    schemas: Object = {}
    for kind in served:
        schema = dict(kind.schema or {"type": "object"})
        schema["x-kubernetes-group-version-kind"] = [_gvk(kind)]
        schemas[f"{kind.group or 'core'}.{kind.version}.{kind.name}"] = schema
    document = {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": _VERSION},
        "paths": {_path(kind): _item_v3(kind) for kind in served},
        "components": {"schemas": schemas},
    }
    return msgspec.json.encode(document)


def _all(kinds: Kinds) -> list[Kind]:
    return [
        kind for group, versions in kinds.groups().items() for version in versions for kind in kinds.of(group, version)
    ]


def _path(kind: Kind) -> str:
    prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return (
        f"{prefix}/namespaces/{{namespace}}/{kind.plural}/{{name}}"
        if kind.namespaced
        else f"{prefix}/{kind.plural}/{{name}}"
    )


def _gvk(kind: Kind) -> Object:
    return {"group": kind.group, "kind": kind.name, "version": kind.version}


def _named(kind: Kind) -> Object:
    return {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": _gvk(kind)}


def _item_v3(kind: Kind) -> Object:
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _PARAMETERS]
    reference = {"$ref": f"#/components/schemas/{kind.group or 'core'}.{kind.version}.{kind.name}"}
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}}
    body: dict[str, Any] = {"content": {media_type: {"schema": {"type": "object"}} for media_type in _PATCHES}}
    patch = {"parameters": parameters, "requestBody": body, "responses": answer, **_named(kind)}
    get = {"responses": answer, "x-kubernetes-action": "get", "x-kubernetes-group-version-kind": _gvk(kind)}
    return {"get": get, "patch": patch}


# Encoding of a few length-delimited protobuf fields


def _item_v2(kind: Kind) -> bytes:
    """PathItem{patch: Operation}; fields by number as in OpenAPIv2.proto."""
    operation = b"".join(_field(7, media_type.encode()) for media_type in _PATCHES)
    operation += b"".join(_field(8, _parameter_v2(name)) for name in _PARAMETERS)
    operation += _field(9, _field(1, _field(1, b"200") + _field(2, _field(1, _field(1, b"OK")))))
    for name, value in _named(kind).items():
        yaml = msgspec.json.encode(value)  # JSON is YAML
        operation += _field(13, _field(1, name.encode()) + _field(2, _field(2, yaml)))
    return _field(8, operation)


def _parameter_v2(name: str) -> bytes:
    """ParametersItem{parameter: Parameter{non_body_parameter: NonBodyParameter{query_parameter_sub_schema}}}."""
    query = _field(2, b"query") + _field(4, name.encode()) + _field(6, b"string")
    return _field(1, _field(2, _field(3, query)))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
