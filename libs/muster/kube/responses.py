"""What the API server answers, and what it means when it does not."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

_SHOWN_CHARACTERS: Final = 300  # of an answer that is not a Status: often a proxy's page


class Response(Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KubeUnreachable(ConnectionError):
    """No whole answer came: no connection, a broken one, or too late. The request may have been carried out."""

    def __init__(self, url: str, cause: BaseException | str) -> None:
        """`url` must hold no credentials."""
        if isinstance(cause, str):
            why = cause
        elif isinstance(cause, TimeoutError):
            why = f"no answer in time{f' ({cause})' if str(cause) else ''}"
        else:
            why = str(cause) or type(cause).__name__
        super().__init__(f"the API server cannot be reached at {url}: {why}")
        self.url = url


class _Details(Struct, rename="camel", frozen=True):
    retry_after_seconds: float | None = None


class _Status(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_decoder = msgspec.json.Decoder(_Status)


class ApiStatusError(Exception):
    """The API server refused. `reason` is its word for it (e.g. "Conflict"), `message` its sentence."""

    def __init__(self, status: int, reason: str, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        """How long the API server wants us to wait before the next try; None if it did not say."""

    @classmethod
    def from_response(cls, response: Response) -> "ApiStatusError":
        """Read the Status in the answer, or quote its beginning if it is none."""
        try:
            told = _decoder.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            told = _Status()
        message = told.message or response.body[:_SHOWN_CHARACTERS].decode(errors="replace").strip() or "(no message)"
        seconds = _retry_after(response.headers)
        if seconds is None and told.details is not None:
            seconds = told.details.retry_after_seconds
        return cls(response.status, told.reason or "", message, seconds)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() else None
