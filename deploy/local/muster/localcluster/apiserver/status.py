"""Errors of the API: Status objects with code, reason and causes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Cause(Struct, frozen=True):
    """Problem of one field."""

    reason: str
    message: str
    field: str


class StatusError(Exception):
    """Failed request, with its Status object and HTTP status."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.reason = _REASONS.get(code, "") if reason is None else reason
        self.details = details
        self.retry_after_seconds = retry_after_seconds

    def as_object(self) -> dict[str, Any]:
        """The Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        details = dict(self.details or {})
        if self.retry_after_seconds is not None:
            details["retryAfterSeconds"] = self.retry_after_seconds
        if details:
            status["details"] = details
        status["code"] = self.code
        return status

    def encoded(self) -> bytes:
        """The Status object as JSON."""
        return msgspec.json.encode(self.as_object())


def success(code: int = 200, details: Mapping[str, Any] | None = None) -> bytes:
    """Status object of a successful request without another result, as JSON."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    else:
        status["code"] = code
    return msgspec.json.encode(status)


def bad_request(message: str) -> StatusError:
    return StatusError(400, message)


def not_found(resource: str, group: str, name: str) -> StatusError:
    """`resource`: plural without the group."""
    return StatusError(
        404, f'{_qualified(resource, group)} "{name}" not found', details=_details(name, group, resource)
    )


def no_such_resource() -> StatusError:
    return StatusError(404, "the server could not find the requested resource", details={})


def method_not_allowed() -> StatusError:
    return StatusError(405, "the server does not allow this method on the requested resource", details={})


def already_exists(resource: str, group: str, name: str) -> StatusError:
    message = f'{_qualified(resource, group)} "{name}" already exists'
    return StatusError(409, message, reason="AlreadyExists", details=_details(name, group, resource))


def conflict(resource: str, group: str, name: str, detail: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {_qualified(resource, group)} "{name}": {detail}'
    return StatusError(409, message, details=_details(name, group, resource))


def forbidden(resource: str, group: str, name: str, detail: str, *, causes: Sequence[object] = ()) -> StatusError:
    message = f'{_qualified(resource, group)} "{name}" is forbidden: {detail}'
    details = _details(name, group, resource)
    return StatusError(403, message, details=details | {"causes": causes} if causes else details)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """422 with all problems."""
    texts = list(dict.fromkeys(_cause_text(cause) for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(name, group, kind) | {"causes": [msgspec.to_builtins(cause) for cause in causes]}
    return StatusError(422, f'{_qualified(kind, group)} "{name}" is invalid: {listed}', details=details)


def expired(message: str) -> StatusError:
    return StatusError(410, message)


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def invalid_value(field: str, value: object, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_quoted(value)}: {detail}", field)


def not_supported(field: str, value: object, supported: Iterable[str]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {_quoted(value)}: supported values: {listed}", field)


def duplicate(field: str, value: object) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {_quoted(value)}", field)


def forbidden_value(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def too_long(field: str, max_bytes: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {max_bytes} bytes", field)


def too_many(field: str, count: int, maximum: int) -> Cause:
    """A list or map with more items than allowed."""
    allowed = "1 item" if maximum == 1 else f"{maximum} items"
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {allowed}", field)


def not_found_value(field: str, value: object) -> Cause:
    """A reference to an item that does not exist."""
    return Cause("FieldValueNotFound", f"Not found: {_quoted(value)}", field)


def _cause_text(cause: Cause) -> str:
    return f"{cause.field}: {cause.message}" if cause.field else cause.message


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def _quoted(value: object) -> str:
    return msgspec.json.encode(value).decode()
