"""Clients of etcd, one per endpoint: a call goes to the one that answered last, and to the next when it is silent."""

import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import grpc
import structlog
from msgspec import Struct

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.etcd.errors import BadEndpoints, EtcdUnavailable, TooLarge
from muster.etcd.etcd3_import import etcd3
from muster.rpc.channel import CONNECTION_OPTIONS

_log = structlog.get_logger()
_T = TypeVar("_T")

_OPTIONS: Final = (*CONNECTION_OPTIONS, ("grpc.max_receive_message_length", -1))

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
_TOO_LARGE: Final = ("request is too large", "too many operations in txn request", "message larger than max")


class Answer(Struct, Generic[_T], frozen=True):
    """What etcd answered. `repeated`: an earlier try of the same request may have had its effect before this one."""

    value: _T
    repeated: bool


class Connection:
    """Blocking calls to etcd, from any thread. Every call ends within `timeout_seconds`."""

    def __init__(
        self,
        endpoints: str,
        timeout_seconds: float,
        tls: TlsSettings = PLAIN_TEXT,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        """`endpoints` is "HOST:PORT[,HOST:PORT...]". Nothing is connected yet. Raises BadEndpoints."""
        self.endpoints = _parse(endpoints)
        self._timeout_seconds = timeout_seconds / len(self.endpoints)
        self._tls, self._user, self._password = tls, user, password
        self._clients: dict[int, Any] = {}
        self._current = 0
        self._lock = threading.Lock()

    def call(self, request: Callable[[Any], _T]) -> Answer[_T]:
        """Let `request` ask an etcd3 client, at each endpoint in turn until one answers.

        Requests must be safe to repeat. Raises EtcdUnavailable and TooLarge.
        """
        outcome_known, causes = True, []
        for _ in self.endpoints:
            index = self._current
            try:
                return Answer(self._ask(index, request), repeated=not outcome_known)
            except (etcd3.Etcd3Exception, grpc.RpcError) as error:
                code, reason = _reason(error)
                if any(words in reason for words in _TOO_LARGE):
                    raise TooLarge(f"etcd refuses the transaction: {reason}") from error
                outcome_known = outcome_known and (code in _REFUSED or _NEVER_LEFT in reason)
                causes.append(f"{':'.join(self.endpoints[index])}: {reason}")
                self._turn_away(index)
        raise EtcdUnavailable(f"etcd is unavailable ({'; '.join(causes)})", outcome_known=outcome_known)

    def close(self) -> None:
        """Close all connections; calls fail from now on."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _ask(self, index: int, request: Callable[[Any], _T]) -> _T:
        client = self.client(index)
        try:
            return request(client)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED or self._user is None:
                raise
        # Tokens end, also when etcd restarts; only a new client asks for a new one. The old one is not closed, because
        # other threads may be using it.
        with self._lock:
            if self._clients.get(index) is client:
                del self._clients[index]
        return request(self.client(index))

    def client(self, index: int | None = None) -> Any:
        """The etcd3 client of an endpoint; of the one in use now, if none is given."""
        index = self._current if index is None else index
        with self._lock:
            client = self._clients.get(index)
        if client is None:
            made = self._make(*self.endpoints[index])
            with self._lock:
                client = self._clients.setdefault(index, made)
            if client is not made:
                made.close()
        return client

    def _make(self, host: str, port: str) -> Any:
        certificate, key, authority = self._tls.files or (None, None, None)
        client = etcd3.client(
            host,
            port,
            ca_cert=authority,
            cert_key=key,
            cert_cert=certificate,
            timeout=self._timeout_seconds,
            user=self._user,
            password=self._password,
            grpc_options=_OPTIONS,
        )
        # The token is in the metadata of every call as well, and gRPC refuses credentials of calls without TLS.
        client.call_credentials = None
        return client

    def _turn_away(self, index: int) -> None:
        """Let later calls try the next endpoint first, unless another thread has turned already."""
        with self._lock:
            if self._current == index and len(self.endpoints) > 1:
                self._current = (index + 1) % len(self.endpoints)
                _log.warning("etcd endpoint given up", next=":".join(self.endpoints[self._current]))


def _parse(endpoints: str) -> tuple[tuple[str, str], ...]:
    parsed = []
    for endpoint in endpoints.split(","):
        host, _, port = endpoint.strip().rpartition(":")
        if not host or not port.isdecimal() or "/" in host:
            raise BadEndpoints(f"etcd endpoints must be HOST:PORT[,HOST:PORT...] without a scheme, got {endpoints!r}")
        parsed.append((host, port))
    return tuple(parsed)


def _reason(error: Exception) -> tuple[grpc.StatusCode, str]:
    """What gRPC said; etcd3 hides it behind errors of its own."""
    cause = error if isinstance(error, grpc.RpcError) else error.__context__
    if isinstance(cause, grpc.Call):
        return cause.code(), f"{cause.code().name}: {cause.details()}"
    return grpc.StatusCode.UNKNOWN, str(error) or type(error).__name__
