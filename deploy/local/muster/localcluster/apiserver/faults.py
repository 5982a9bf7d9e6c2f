"""Fault injection for tests of clients, served under /muster-faults if the server was started with it.

POST   /muster-faults              add a fault; JSON: {"method": "POST", "path_prefix": "/api/v1/namespaces/a/pods",
                                   "path_suffix": "/binding", "count": 3, "status": 429, "reason": "...",
                                   "message": "...", "retry_after_seconds": 1, "delay_seconds": 0.5,
                                   "after": true}
                                   Empty method or prefix match all. The next `count` (default 1) matching requests
                                   are delayed, then answered with `status`; without `status` they are only delayed.
                                   "after": the request is executed and its response discarded, as if it were lost.
                                   Status 0 closes the connection without a response. Returns {"id": n}.
GET    /muster-faults              remaining faults with their `count`, and the number of open watches
DELETE /muster-faults              remove all faults
POST   /muster-faults/cut-watches  close all watches without an error; {"cut": n}
POST   /muster-faults/compact      drop all history and continue tokens: they get 410
POST   /muster-faults/bookmarks    send a bookmark on every watch that allows them
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.localcluster.apiserver.status import StatusError, bad_request

PATH: Final = "/muster-faults"

_DEFAULT_MESSAGES: Final = {
    409: "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version",
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: fault injected",
    503: "the server is currently unable to handle the request",
}


class Fault(Struct):
    """Fault, the requests that it matches, and its remaining count."""

    id: int = 0
    method: str = ""
    path_prefix: str = ""
    path_suffix: str = ""
    count: int = 1
    status: int | None = None
    reason: str | None = None
    message: str = ""
    retry_after_seconds: int | None = None
    delay_seconds: float = 0.0
    after: bool = False

    def matches(self, method: str, path: str) -> bool:
        return (
            self.count > 0
            and self.method in ("", method)
            and path.startswith(self.path_prefix)
            and path.endswith(self.path_suffix)
        )

    @property
    def error(self) -> StatusError | None:
        """The response to send; None: the real one, or none."""
        if not self.status:
            return None
        message = self.message or _DEFAULT_MESSAGES.get(self.status, "fault injected")
        return StatusError(self.status, message, reason=self.reason, retry_after_seconds=self.retry_after_seconds)


@dataclass(frozen=True)
class ServerFaults:
    """Faults of the server as a whole."""

    cut_watches: Callable[[], int]
    compact: Callable[[], None]
    send_bookmarks: Callable[[], None]
    count_watches: Callable[[], int]


class Faults:
    """Pending faults."""

    def __init__(self, server_faults: ServerFaults) -> None:
        self._server_faults = server_faults
        self._faults: list[Fault] = []
        self._last_id = 0

    def take(self, method: str, path: str) -> Fault | None:
        """The fault for this request, if any; decrements its count."""
        for fault in self._faults:
            if fault.matches(method, path):
                fault.count -= 1
                if fault.count == 0:
                    self._faults.remove(fault)
                return fault
        return None

    def serve(self, method: str, path: str, body: bytes) -> bytes:
        """Handle a request to the endpoint itself. Raises StatusError 400, 404."""
        match method, path.removeprefix(PATH).strip("/"):
            case "POST", "":
                return self._add(body)
            case "GET", "":
                listed: dict[str, Any] = {"faults": self._faults, "watches": self._server_faults.count_watches()}
                return msgspec.json.encode(listed)
            case "DELETE", "":
                self._faults.clear()
                return b"{}"
            case "POST", "cut-watches":
                return msgspec.json.encode({"cut": self._server_faults.cut_watches()})
            case "POST", "compact":
                self._server_faults.compact()
                return b"{}"
            case "POST", "bookmarks":
                self._server_faults.send_bookmarks()
                return b"{}"
        raise StatusError(404, f"{method} {path} is no fault; see the module muster.localcluster.apiserver.faults")

    def _add(self, body: bytes) -> bytes:
        try:
            fault = msgspec.json.decode(body, type=Fault)
        except msgspec.DecodeError as error:
            raise bad_request(f"no fault: {error}") from error
        self._last_id += 1
        fault.id = self._last_id
        self._faults.append(fault)
        return msgspec.json.encode({"id": fault.id})
