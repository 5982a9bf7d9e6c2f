"""Clients of etcd, one per endpoint: a call goes to the one that answered last, and to the next when it is silent.

A client keeps the certificate and the password that it was made with. When certificates are replaced, or etcd does not
know the client's token any more, there is a new one, with what the files say then.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import grpc
import structlog
from msgspec import Struct

from muster.config.settings import PLAIN_TEXT, CannotStart, TlsSettings
from muster.etcd.errors import BadEndpoints, EtcdUnavailable, TooLarge
from muster.etcd.etcd3_import import etcd3
from muster.rpc.channel import CONNECTION_OPTIONS
from muster.rpc.credentials import Certificates

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
_OUTDATED: Final = "revision of auth store is old"
_TOO_LARGE: Final = ("request is too large", "too many operations in txn request", "message larger than max")


Password = Callable[[], str | None]
"""Says it as it is now; raises CannotStart if it cannot be had."""


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
        password: Password | None = None,
    ) -> None:
        """`endpoints` is "HOST:PORT[,HOST:PORT...]". Nothing is connected yet.

        Raises BadEndpoints, BadCertificates, and what `password` raises.
        """
        self.endpoints = _parse(endpoints)
        self._timeout_seconds = timeout_seconds / len(self.endpoints)
        self._certificates = None if tls.files is None else Certificates(tls.files)
        self._user, self._password = user, password
        self._last_password = password() if password else None
        self._clients: dict[int, Any] = {}
        self._retired: list[tuple[float, Any]] = []
        self._current = 0
        self._lock = threading.Lock()

    def call(self, request: Callable[[Any], _T]) -> Answer[_T]:
        """Let `request` ask an etcd3 client, at each endpoint in turn until one answers.

        Requests must be safe to repeat. Raises EtcdUnavailable and TooLarge.
        """
        outcome_known, causes = True, []
        self._close_retired()
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
            clients = [*self._clients.values(), *(client for _, client in self._retired)]
            self._clients, self._retired = {}, []
        for client in clients:
            client.close()

    def _ask(self, index: int, request: Callable[[Any], _T]) -> _T:
        client = self.client(index)
        try:
            return request(client)
        except grpc.RpcError as error:
            if self._user is None or not _has_no_token(error):
                raise
        # Tokens end, also when etcd restarts or a password changes; only a new client asks for a new one.
        with self._lock:
            if self._clients.get(index) is client:
                self._retire(index)
        return request(self.client(index))

    def client(self, index: int | None = None) -> Any:
        """The etcd3 client of an endpoint; of the one in use now, if none is given."""
        index = self._current if index is None else index
        if self._certificates is not None and self._certificates.renewed():
            with self._lock:
                for made_before in list(self._clients):
                    self._retire(made_before)
        with self._lock:
            client = self._clients.get(index)
        if client is None:
            made = self._make(*self.endpoints[index])
            with self._lock:
                client = self._clients.setdefault(index, made)
            if client is not made:
                made.close()
        return client

    def _retire(self, index: int) -> None:
        """With the lock: have the next call make a new client. This one stays a while, since calls may be under way."""
        self._retired.append((time.monotonic(), self._clients.pop(index)))

    def _close_retired(self) -> None:
        """Close clients on which no call can be under way; a watch notices, and begins anew."""
        if not self._retired:
            return
        before = time.monotonic() - 2 * self._timeout_seconds
        with self._lock:
            over = [client for retired, client in self._retired if retired < before]
            self._retired = [each for each in self._retired if each[0] >= before]
        for client in over:
            client.close()

    def _current_password(self) -> str | None:
        """As it is now; as it was, if it cannot be read."""
        if self._password is not None:
            try:
                self._last_password = self._password()
            except CannotStart as error:
                _log.warning("the password that etcd knew is tried again", error=str(error))
        return self._last_password

    def _make(self, host: str, port: str) -> Any:
        certificate, key, authority = self._certificates.files if self._certificates else (None, None, None)
        client = etcd3.client(
            host,
            port,
            ca_cert=authority,
            cert_key=key,
            cert_cert=certificate,
            timeout=self._timeout_seconds,
            user=self._user,
            password=self._current_password(),
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


def _has_no_token(error: grpc.RpcError) -> bool:
    """The password may be right, but etcd does not know the token that it once gave for it, or not as of now."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or _OUTDATED in (error.details() or "")


def _reason(error: Exception) -> tuple[grpc.StatusCode, str]:
    """What gRPC said; etcd3 hides it behind errors of its own."""
    cause = error if isinstance(error, grpc.RpcError) else error.__context__
    if isinstance(cause, grpc.Call):
        return cause.code(), f"{cause.code().name}: {cause.details()}"
    return grpc.StatusCode.UNKNOWN, str(error) or type(error).__name__
