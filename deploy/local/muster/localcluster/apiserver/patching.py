"""Patches of all four kinds, chosen by content type."""

from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.decoding import decode_body
from muster.localcluster.apiserver.json_patch import BadPatch, apply_json_patch
from muster.localcluster.apiserver.kinds import Kind
from muster.localcluster.apiserver.merge_patch import apply_merge_patch
from muster.localcluster.apiserver.status import StatusError, bad_request
from muster.localcluster.apiserver.store import Object
from muster.localcluster.apiserver.strategic_merge import apply_strategic_merge

JSON_PATCH: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch"
"""Server-side apply, as JSON or YAML: what is given is merged in. Who owns which field is not kept."""

_ACCEPTED: Final = (JSON_PATCH, MERGE, f"{APPLY}+yaml")


def patched(kind: Kind, current: Object, content_type: str, body: bytes) -> Any:
    """`current` with the patch; it may be changed on the way. Raises StatusError 400, 415, 422."""
    media_type = content_type.partition(";")[0].strip()
    if media_type.startswith(APPLY):
        patch = _mapping(decode_body(body, "application/yaml" if media_type.endswith("yaml") else "application/json"))
        (patch.get("metadata") or {}).pop("managedFields", None)
        return apply_merge_patch(current, patch) if kind.custom else apply_strategic_merge(current, patch)
    if media_type == MERGE:
        return apply_merge_patch(current, _mapping(_decoded(body)))
    if media_type == STRATEGIC and not kind.custom:
        return apply_strategic_merge(current, _mapping(_decoded(body)))
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


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _mapping(patch: Any) -> Object:
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: it is no JSON object")
    return patch
