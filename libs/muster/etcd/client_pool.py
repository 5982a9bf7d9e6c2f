"""One etcd client per endpoint, created on first use and replaced when its certificate or token is outdated.

A client keeps its certificate and its authentication token. etcd's password check is slow on purpose, and all callers
are rejected at once when etcd drops its tokens. So one thread per endpoint authenticates for all callers, and continues
when a caller times out: the next call finds the client ready.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import grpc
import structlog

from muster.config.settings import PLAIN_TEXT, CannotStart, TlsSettings
from muster.etcd.errors import EtcdUnavailable
from muster.etcd.etcd3_import import etcd3, etcdrpc
from muster.rpc.channel import CONNECTION_OPTIONS
from muster.rpc.credentials import Certificates

_log = structlog.get_logger()

AUTHENTICATION_SECONDS: Final = 15.0
"""Timeout of a password check: at etcd's default bcrypt cost a busy machine takes seconds for many of them."""

_OPTIONS: Final = (*CONNECTION_OPTIONS, ("grpc.max_receive_message_length", -1))

Password = Callable[[], str | None]
"""Returns the current password; raises CannotStart if it cannot be read."""


class _Etcd3Client(etcd3.Etcd3Client):  # type: ignore[misc]  # etcd3 has no types
    """Takes certificates as bytes: their files may be replaced one by one while they are read."""

    def _get_secure_creds(self, ca_cert: bytes, cert_key: bytes, cert_cert: bytes) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(ca_cert, cert_key, cert_cert)


class _Entry(NamedTuple):
    client: Any
    ready: Future[None]
    """Done when the client is authenticated; fails with etcd's error."""


class ClientPool:
    """Clients by endpoint ("HOST:PORT"). Thread-safe."""

    def __init__(
        self,
        timeout_seconds: float,
        tls: TlsSettings = PLAIN_TEXT,
        user: str | None = None,
        password: Password | None = None,
    ) -> None:
        """`timeout_seconds` applies to each call. Raises BadCertificates, and the errors of `password`."""
        self._timeout_seconds = timeout_seconds
        self._certificates = None if tls.files is None else Certificates(tls.files)
        self._user, self._password = user, password
        self._last_password = password() if password else None
        self._entries: dict[str, _Entry] = {}
        self._retired: list[tuple[float, Any]] = []
        self._closed = False
        self._lock = threading.Lock()

    def get(self, endpoint: str) -> Any:
        """The authenticated etcd3 client of an endpoint.

        Raises EtcdUnavailable if authentication takes longer than the timeout, and RpcError if etcd rejects it.
        """
        renewed = self._certificates is not None and self._certificates.renewed()
        with self._lock:
            if self._closed:
                raise EtcdUnavailable("the connection to etcd is closed", outcome_known=True)
            if renewed:
                for known in list(self._entries):
                    self._retire(known)
            entry = self._entries.get(endpoint) or self._create(endpoint)
        try:
            entry.ready.result(self._timeout_seconds)
        except TimeoutError as error:
            reason = f"{endpoint}: authentication has not finished after {self._timeout_seconds:g} s"
            raise EtcdUnavailable(reason, outcome_known=True) from error
        return entry.client

    def outdated(self, endpoint: str, client: Any) -> None:
        """Replace a client whose token etcd does not accept any more, unless another thread has done so."""
        with self._lock:
            entry = self._entries.get(endpoint)
            if entry is not None and entry.client is client:
                self._retire(endpoint)

    def close_retired(self) -> None:
        """Close retired clients whose calls have all timed out; a watch on one ends, and is reopened by its owner."""
        if not self._retired:
            return
        before = time.monotonic() - 2 * self._timeout_seconds
        with self._lock:
            expired = [client for retired, client in self._retired if retired < before]
            self._retired = [each for each in self._retired if each[0] >= before]
        for client in expired:
            client.close()

    def close(self) -> None:
        """Close all clients; `get` fails from now on."""
        with self._lock:
            self._closed = True
            clients = [*(entry.client for entry in self._entries.values()), *(client for _, client in self._retired)]
            self._entries, self._retired = {}, []
        for client in clients:
            client.close()

    def _retire(self, endpoint: str) -> None:
        """Have the next call create a new client; this one stays open for its calls. The caller holds the lock."""
        self._retired.append((time.monotonic(), self._entries.pop(endpoint).client))

    def _create(self, endpoint: str) -> _Entry:
        """Create a client, and authenticate it in a thread. The caller holds the lock."""
        host, _, port = endpoint.rpartition(":")
        pem = self._certificates.pem if self._certificates else None
        client = _Etcd3Client(
            host,
            port,
            ca_cert=pem and pem.authority,
            cert_key=pem and pem.key,
            cert_cert=pem and pem.certificate,
            timeout=self._timeout_seconds,
            grpc_options=_OPTIONS,
        )
        entry = self._entries[endpoint] = _Entry(client, Future())
        if self._user is None:
            entry.ready.set_result(None)
        else:
            name = f"etcd authentication {endpoint}"
            threading.Thread(target=self._authenticate, args=(endpoint, entry), name=name, daemon=True).start()
        return entry

    def _authenticate(self, endpoint: str, entry: _Entry) -> None:
        try:
            request = etcdrpc.AuthenticateRequest(name=self._user, password=self._current_password())
            answer = etcdrpc.AuthStub(entry.client.channel).Authenticate(request, timeout=AUTHENTICATION_SECONDS)
            entry.client.metadata = (("token", answer.token),)
        except Exception as error:  # raised in the waiting callers
            with self._lock:
                if self._entries.get(endpoint) is entry:
                    del self._entries[endpoint]
            entry.client.close()
            entry.ready.set_exception(error)
        else:
            entry.ready.set_result(None)

    def _current_password(self) -> str | None:
        """The current password; the previous one if it cannot be read."""
        if self._password is not None:
            try:
                self._last_password = self._password()
            except CannotStart as error:
                _log.warning("password_read_failed", error=str(error))
        return self._last_password
