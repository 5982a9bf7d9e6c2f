"""Calls to etcd: each uses the endpoint that answered last, and fails over to the next one."""

import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import grpc
import structlog
from msgspec import Struct

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.etcd.client_pool import ClientPool, Password
from muster.etcd.errors import BadEndpoints, EtcdUnavailable, TooLarge
from muster.etcd.etcd3_import import etcd3

_log = structlog.get_logger()
_T = TypeVar("_T")

# gRPC's message for a request that was not sent because there is no connection. If it changes, the outcome counts as
# unknown, which is safe.
_NOT_SENT: Final = "failed to connect to all addresses"
_REJECTED: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
_OLD_AUTH_REVISION: Final = "revision of auth store is old"
_TOO_LARGE: Final = ("request is too large", "too many operations in txn request", "message larger than max")


class Answer(Struct, Generic[_T], frozen=True):
    """etcd's answer. `repeated`: an earlier attempt of the same request may have taken effect."""

    value: _T
    repeated: bool


class Connection:
    """Blocking calls to etcd, from any thread. `timeout_seconds` bounds a call over all members together."""

    def __init__(
        self,
        endpoints: str,
        timeout_seconds: float,
        tls: TlsSettings = PLAIN_TEXT,
        user: str | None = None,
        password: Password | None = None,
    ) -> None:
        """`endpoints` is "HOST:PORT[,HOST:PORT...]". Connects lazily.

        Raises BadEndpoints, BadCertificates, and the errors of `password`.
        """
        self.endpoints = parse_endpoints(endpoints)
        self._clients = ClientPool(timeout_seconds / len(self.endpoints), tls, user, password)
        self._has_user = user is not None
        self._current = 0
        self._lock = threading.Lock()

    def call(self, request: Callable[[Any], _T]) -> Answer[_T]:
        """Call `request` with the etcd3 client of each endpoint in turn until one answers.

        Requests must be idempotent. Raises EtcdUnavailable and TooLarge.
        """
        outcome_known, causes = True, []
        self._clients.close_retired()
        for _ in self.endpoints:
            index = self._current
            try:
                return Answer(self._call(self.endpoints[index], request), repeated=not outcome_known)
            except EtcdUnavailable as error:  # nothing was sent
                causes.append(str(error))
            except (etcd3.Etcd3Exception, grpc.RpcError) as error:
                code, reason = _reason(error)
                if any(words in reason for words in _TOO_LARGE):
                    raise TooLarge(f"etcd rejects the transaction: {reason}") from error
                outcome_known = outcome_known and (code in _REJECTED or _NOT_SENT in reason)
                causes.append(f"{self.endpoints[index]}: {reason}")
            self._fail_over(index)
        raise EtcdUnavailable(f"etcd is unavailable ({'; '.join(causes)})", outcome_known=outcome_known)

    def client(self) -> Any:
        """The etcd3 client of the current endpoint. Raises EtcdUnavailable and RpcError."""
        return self._clients.get(self.endpoints[self._current])

    def close(self) -> None:
        """Close all connections; calls fail from now on."""
        self._clients.close()

    def _call(self, endpoint: str, request: Callable[[Any], _T]) -> _T:
        client = self._clients.get(endpoint)
        try:
            return request(client)
        except grpc.RpcError as error:
            if not self._has_user or not _lacks_valid_token(error):
                raise
        # Tokens expire, also when etcd restarts or a password changes; only a new client requests a new one.
        self._clients.outdated(endpoint, client)
        return request(self._clients.get(endpoint))

    def _fail_over(self, index: int) -> None:
        """Have later calls try the next endpoint first, unless another thread has switched already."""
        with self._lock:
            if self._current == index and len(self.endpoints) > 1:
                self._current = (index + 1) % len(self.endpoints)
                _log.warning("etcd_endpoint_switched", next=self.endpoints[self._current])


def parse_endpoints(endpoints: str) -> tuple[str, ...]:
    """Split "HOST:PORT[,HOST:PORT...]". Raises BadEndpoints."""
    parsed = []
    for endpoint in endpoints.split(","):
        host, _, port = endpoint.strip().rpartition(":")
        if not host or not port.isdecimal() or "/" in host:
            raise BadEndpoints(f"etcd endpoints must be HOST:PORT[,HOST:PORT...] without a scheme, got {endpoints!r}")
        parsed.append(f"{host}:{port}")
    return tuple(parsed)


def _lacks_valid_token(error: grpc.RpcError) -> bool:
    """Whether etcd rejects the token, while the password may be right."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or _OLD_AUTH_REVISION in (error.details() or "")


def _reason(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Status and message of gRPC, which etcd3 hides behind errors of its own."""
    cause = error if isinstance(error, grpc.RpcError) else error.__context__
    if isinstance(cause, grpc.Call):
        return cause.code(), f"{cause.code().name}: {cause.details()}"
    return grpc.StatusCode.UNKNOWN, str(error) or type(error).__name__
