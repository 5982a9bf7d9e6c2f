"""JSON, merge and strategic merge patches, by content type."""

from typing import Any, Final

import msgspec
from jsonpath import JSONPatch, JSONPointer
from jsonpath.exceptions import JSONPatchError, JSONPointerError

from muster.localcluster.apiserver.kinds import Kind
from muster.localcluster.apiserver.status import StatusError, bad_request
from muster.localcluster.apiserver.store import Object
from muster.localcluster.apiserver.strategic_merge import apply_strategic_merge

JSON_PATCH: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_ACCEPTED: Final = (JSON_PATCH, MERGE)


class BadPatch(ValueError):
    """A JSON patch that cannot be applied; names the operation and the cause."""


def patched(kind: Kind, current: Object, content_type: str, body: bytes) -> Any:
    """`current` with the patch applied; may modify `current`. Raises StatusError 400, 415, 422."""
    media_type = content_type.partition(";")[0].strip()
    if media_type == MERGE:
        return apply_merge_patch(current, _object(_decoded(body)))
    if media_type == STRATEGIC and not kind.custom:
        return apply_strategic_merge(current, _object(_decoded(body)))
    if media_type == JSON_PATCH:
        try:
            return apply_json_patch(current, _decoded(body))
        except BadPatch as error:
            raise StatusError(
                422, f"the server rejected our request due to an error in our request: {error}"
            ) from error
    if media_type == STRATEGIC:
        accepted = ", ".join(_ACCEPTED)
        message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise StatusError(415, message)
    raise StatusError(415, "415: Unsupported Media Type", details={})


def apply_json_patch(document: Any, patch: Any) -> Any:
    """RFC 6902: the document after all operations; may modify `document`. Raises BadPatch.

    As in kube-apiserver, and unlike in the RFC, a test for null is true of a member that is missing.
    """
    if not isinstance(patch, list):
        raise BadPatch("a JSON patch is a list of operations")
    try:
        for operation in patch:
            if not _is_true_of_missing(operation, document):
                document = JSONPatch([operation]).apply(document)
    except (JSONPatchError, JSONPointerError) as error:
        raise BadPatch(str(error)) from error
    return document


def _is_true_of_missing(operation: Any, document: Any) -> bool:
    if not (isinstance(operation, dict) and operation.get("op") == "test" and operation.get("value", "") is None):
        return False
    pointer = JSONPointer(str(operation.get("path")))
    return pointer.parent().exists(document) and not pointer.exists(document)


def apply_merge_patch(current: Object, patch: Object) -> Object:
    """RFC 7386: null removes a member, objects are merged, other values replace. Does not modify `current`.

    The library for it, json-merge-patch, modifies its argument and has no types.
    """
    merged = dict(current)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            previous = merged.get(name)
            merged[name] = apply_merge_patch(previous if isinstance(previous, dict) else {}, value)
        else:
            merged[name] = value
    return merged


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _object(patch: Any) -> Object:
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: not a JSON object")
    return patch
