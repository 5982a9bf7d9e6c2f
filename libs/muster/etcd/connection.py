"""Calls to etcd: each goes to the endpoint that answered last, and to the next when that is silent."""

import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import grpc
import structlog
from msgspec import Struct

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.etcd.client_pool import Clients, Password
from muster.etcd.errors import BadEndpoints, EtcdUnavailable, TooLarge
from muster.etcd.etcd3_import import etcd3

_log = structlog.get_logger()
_T = TypeVar("_T")

# gRPC's words for a request that never left because there is no connection. Should they change, the outcome counts as
# unknown, which is safe.
_NEVER_LEFT: Final = "failed to connect to all addresses"
_REFUSED: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
_OUTDATED: Final = "revision of auth store is old"
_TOO_LARGE: Final = ("request is too large", "too many operations in txn request", "message larger than max")


class Answer(Struct, Generic[_T], frozen=True):
    """What etcd answered. `repeated`: an earlier try of the same request may have had its effect before this one."""

    value: _T
    repeated: bool


class Connection:
    """Blocking calls to etcd, from any thread. A call waits for `timeout_seconds` for all members together."""

    def __init__(
        self,
        endpoints: str,
        timeout_seconds: float,
        tls: TlsSettings = PLAIN_TEXT,
        user: str | None = None,
        password: Password | None = None,
    ) -> None:
        """`endpoints` is "HOST:PORT[,HOST:PORT...]". Nothing is connected yet.

        Raises BadEndpoints, BadCertificates, and what `password` raises.
        """
        self.endpoints = parse_endpoints(endpoints)
        self._clients = Clients(timeout_seconds / len(self.endpoints), tls, user, password)
        self._has_user = user is not None
        self._current = 0
        self._lock = threading.Lock()

    def call(self, request: Callable[[Any], _T]) -> Answer[_T]:
        """Let `request` ask an etcd3 client, at each endpoint in turn until one answers.

        Requests must be safe to repeat. Raises EtcdUnavailable and TooLarge.
        """
        outcome_known, causes = True, []
        self._clients.close_retired()
        for _ in self.endpoints:
            index = self._current
            try:
                return Answer(self._ask(self.endpoints[index], request), repeated=not outcome_known)
            except EtcdUnavailable as error:  # it was not asked at all
                causes.append(str(error))
            except (etcd3.Etcd3Exception, grpc.RpcError) as error:
                code, reason = _reason(error)
                if any(words in reason for words in _TOO_LARGE):
                    raise TooLarge(f"etcd refuses the transaction: {reason}") from error
                outcome_known = outcome_known and (code in _REFUSED or _NEVER_LEFT in reason)
                causes.append(f"{self.endpoints[index]}: {reason}")
            self._turn_away(index)
        raise EtcdUnavailable(f"etcd is unavailable ({'; '.join(causes)})", outcome_known=outcome_known)

    def client(self) -> Any:
        """The etcd3 client of the endpoint in use now. Raises EtcdUnavailable and RpcError."""
        return self._clients.get(self.endpoints[self._current])

    def close(self) -> None:
        """Close all connections; calls fail from now on."""
        self._clients.close()

    def _ask(self, endpoint: str, request: Callable[[Any], _T]) -> _T:
        client = self._clients.get(endpoint)
        try:
            return request(client)
        except grpc.RpcError as error:
            if not self._has_user or not _has_no_token(error):
                raise
        # Tokens end, also when etcd restarts or a password changes; only a new client asks for a new one.
        self._clients.outdated(endpoint, client)
        return request(self._clients.get(endpoint))

    def _turn_away(self, index: int) -> None:
        """Let later calls try the next endpoint first, unless another thread has turned already."""
        with self._lock:
            if self._current == index and len(self.endpoints) > 1:
                self._current = (index + 1) % len(self.endpoints)
                _log.warning("etcd endpoint given up", next=self.endpoints[self._current])


def parse_endpoints(endpoints: str) -> tuple[str, ...]:
    """Each "HOST:PORT" of a list of them. Raises BadEndpoints."""
    parsed = []
    for endpoint in endpoints.split(","):
        host, _, port = endpoint.strip().rpartition(":")
        if not host or not port.isdecimal() or "/" in host:
            raise BadEndpoints(f"etcd endpoints must be HOST:PORT[,HOST:PORT...] without a scheme, got {endpoints!r}")
        parsed.append(f"{host}:{port}")
    return tuple(parsed)


def _has_no_token(error: grpc.RpcError) -> bool:
    """The password may be right, but etcd does not know the token that it once gave for it, or not as of now."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or _OUTDATED in (error.details() or "")


def _reason(error: Exception) -> tuple[grpc.StatusCode, str]:
    """What gRPC said; etcd3 hides it behind errors of its own."""
    cause = error if isinstance(error, grpc.RpcError) else error.__context__
    if isinstance(cause, grpc.Call):
        return cause.code(), f"{cause.code().name}: {cause.details()}"
    return grpc.StatusCode.UNKNOWN, str(error) or type(error).__name__
