"""Responses of the API server, and errors for refusals and missing responses."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

_SHOWN_CHARACTERS: Final = 300  # of a response that is not a Status, e.g. a proxy's page
_LONGEST_RETRY_AFTER_SECONDS: Final = 60.0  # a longer pause would outlast the outage


class Response(Struct, frozen=True):
    """A response of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KubeUnreachable(ConnectionError):
    """There is no complete response: no connection, a broken one, or a timeout. The request may have taken effect."""

    def __init__(self, url: str, cause: BaseException | str) -> None:
        """`url` must not contain credentials."""
        if isinstance(cause, str):
            reason = cause
        elif isinstance(cause, TimeoutError):
            reason = f"no answer in time{f' ({cause})' if str(cause) else ''}"
        else:
            reason = str(cause) or type(cause).__name__
        super().__init__(f"the API server cannot be reached at {url}: {reason}")
        self.url = url


class ResponseTooLong(KubeUnreachable):
    """The response exceeds the limit of memory and was not read; a smaller page of a list may fit."""


class _Details(Struct, rename="camel", frozen=True):
    retry_after_seconds: float | None = None


class _Status(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_decoder = msgspec.json.Decoder(_Status)


class ApiStatusError(Exception):
    """The API server rejected a request. `reason` is machine-readable (e.g. "Conflict"), `message` is for people."""

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        """Delay that the API server requests before a retry; None: not given."""

    @classmethod
    def from_response(cls, response: Response) -> "ApiStatusError":
        """The error in a response: its Status, or the beginning of a body that is not a Status."""
        try:
            status = _decoder.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            status = _Status()
        message = status.message or response.body[:_SHOWN_CHARACTERS].decode(errors="replace").strip() or "(no message)"
        seconds = _retry_after(response.headers)
        if seconds is None and status.details is not None:
            seconds = status.details.retry_after_seconds
        if seconds is not None:
            seconds = min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_SECONDS)
        return cls(response.status, status.reason or "", message, seconds)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After", "")
    return float(text[:10]) if text.isascii() and text.isdecimal() else None
