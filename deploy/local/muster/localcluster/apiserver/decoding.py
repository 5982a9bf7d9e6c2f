"""Decodes request bodies in JSON or protobuf, and checks that their kind matches the path."""

from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.kinds import Kind
from muster.localcluster.apiserver.metadata import check_metadata_types
from muster.localcluster.apiserver.protobuf import MEDIA_TYPE, UnknownField, decode_protobuf
from muster.localcluster.apiserver.status import StatusError, bad_request
from muster.localcluster.apiserver.store import Object

_decode: Final = msgspec.json.Decoder().decode
_JSON: Final = ("", "application/json", "application/x-www-form-urlencoded")  # curl -d says the latter


def decode_body(body: bytes, content_type: str) -> Any:
    """Decode a body. Raises StatusError 400, 415."""
    media_type = content_type.partition(";")[0].strip()
    if media_type == MEDIA_TYPE:
        try:
            return decode_protobuf(body)
        except UnknownField as error:
            raise StatusError(415, str(error)) from error
        except ValueError as error:
            raise bad_request(f"provided data does not appear to be a protobuf message: {error}") from error
    if media_type not in _JSON:
        only = f"application/json, {MEDIA_TYPE}"
        message = f"the body of the request was in an unknown format - accepted media types include: {only}"
        raise StatusError(415, message)
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def decode_object(kind: Kind, body: bytes, content_type: str) -> Object:
    """An object of the kind, in the version of the path. Raises StatusError 400, 415."""
    return as_object(kind, decode_body(body, content_type))


def as_object(kind: Kind, value: Any) -> Object:
    """The value as an object of the kind, with `kind` and `apiVersion` first. Raises StatusError 400."""
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.name}): it is not a JSON object")
    name, api_version = value.pop("kind", None) or kind.name, value.pop("apiVersion", None) or kind.api_version
    if (name, api_version) != (kind.name, kind.api_version):
        known = api_version.rpartition("/")[2] if isinstance(api_version, str) else kind.version
        raise bad_request(
            f'{name} in version "{known}" cannot be handled as a {kind.name}: the API version in the data '
            f"({api_version}, Kind={name}) does not match the expected API version ({kind.api_version}, "
            f"Kind={kind.name})"
        )
    metadata = value.pop("metadata", None)
    metadata = {} if metadata is None else metadata
    check_metadata_types(metadata, kind.version, kind.name)
    return {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata} | value


def decode_options(body: bytes, content_type: str) -> Object:
    """DeleteOptions, or an empty object if there is no body. Raises StatusError 400."""
    if not body:
        return {}
    options = decode_body(body, content_type)
    if not isinstance(options, dict):
        raise bad_request("the object provided is unrecognized (must be of type DeleteOptions)")
    return options
