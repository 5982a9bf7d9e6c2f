"""One client of etcd per endpoint: made when it is first asked for, and anew when what it was made with is outdated.

A client keeps the certificate that it was made with, and the token that etcd gave it for a password. etcd checks
passwords slowly on purpose, and every caller is sent away at the same moment when it forgets its tokens. So one thread
per endpoint shows the password, for all callers, and goes on when a caller cannot wait any longer: who asks next finds
it done.
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

SIGN_IN_SECONDS: Final = 15.0
"""etcd may take so long to check a password: at its default cost a busy machine needs seconds, when many sign in."""

_OPTIONS: Final = (*CONNECTION_OPTIONS, ("grpc.max_receive_message_length", -1))

Password = Callable[[], str | None]
"""Says it as it is now; raises CannotStart if it cannot be had."""


class _Etcd3Client(etcd3.Etcd3Client):  # type: ignore[misc]  # etcd3 has no types
    """Takes certificates themselves: files may be replaced one by one while it would read them."""

    def _get_secure_creds(self, ca_cert: bytes, cert_key: bytes, cert_cert: bytes) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(ca_cert, cert_key, cert_cert)


class _Made(NamedTuple):
    client: Any
    ready: Future[None]
    """Done when calls may be made with it; fails with what etcd said to the password."""


class Clients:
    """Clients by endpoint, "HOST:PORT", for calls from any thread."""

    def __init__(
        self,
        timeout_seconds: float,
        tls: TlsSettings = PLAIN_TEXT,
        user: str | None = None,
        password: Password | None = None,
    ) -> None:
        """`timeout_seconds` is for each of their calls. Raises BadCertificates, and what `password` raises."""
        self._timeout_seconds = timeout_seconds
        self._certificates = None if tls.files is None else Certificates(tls.files)
        self._user, self._password = user, password
        self._last_password = password() if password else None
        self._made: dict[str, _Made] = {}
        self._retired: list[tuple[float, Any]] = []
        self._closed = False
        self._lock = threading.Lock()

    def get(self, endpoint: str) -> Any:
        """The etcd3 client of an endpoint, signed in.

        Raises EtcdUnavailable if that is not done within the timeout, and RpcError if etcd refuses it.
        """
        renewed = self._certificates is not None and self._certificates.renewed()
        with self._lock:
            if self._closed:
                raise EtcdUnavailable("the connection to etcd is closed", outcome_known=True)
            if renewed:
                for made_before in list(self._made):
                    self._retire(made_before)
            made = self._made.get(endpoint) or self._make(endpoint)
        try:
            made.ready.result(self._timeout_seconds)
        except TimeoutError as error:
            reason = f"{endpoint}: the password is not checked yet, after {self._timeout_seconds:g} s"
            raise EtcdUnavailable(reason, outcome_known=True) from error
        return made.client

    def outdated(self, endpoint: str, client: Any) -> None:
        """Its token is not known to etcd any more: make another client, unless somebody was quicker."""
        with self._lock:
            made = self._made.get(endpoint)
            if made is not None and made.client is client:
                self._retire(endpoint)

    def close_retired(self) -> None:
        """Close clients on which no call can be under way; a watch notices, and begins anew."""
        if not self._retired:
            return
        before = time.monotonic() - 2 * self._timeout_seconds
        with self._lock:
            over = [client for retired, client in self._retired if retired < before]
            self._retired = [each for each in self._retired if each[0] >= before]
        for client in over:
            client.close()

    def close(self) -> None:
        """Close them all; there are no others from now on."""
        with self._lock:
            self._closed = True
            clients = [*(made.client for made in self._made.values()), *(client for _, client in self._retired)]
            self._made, self._retired = {}, []
        for client in clients:
            client.close()

    def _retire(self, endpoint: str) -> None:
        """With the lock: have the next call make a new client. This one stays a while, since calls may be under way."""
        self._retired.append((time.monotonic(), self._made.pop(endpoint).client))

    def _make(self, endpoint: str) -> _Made:
        """With the lock."""
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
        made = self._made[endpoint] = _Made(client, Future())
        if self._user is None:
            made.ready.set_result(None)
        else:
            name = f"etcd sign-in {endpoint}"
            threading.Thread(target=self._sign_in, args=(endpoint, made), name=name, daemon=True).start()
        return made

    def _sign_in(self, endpoint: str, made: _Made) -> None:
        try:
            request = etcdrpc.AuthenticateRequest(name=self._user, password=self._current_password())
            answer = etcdrpc.AuthStub(made.client.channel).Authenticate(request, timeout=SIGN_IN_SECONDS)
            made.client.metadata = (("token", answer.token),)
        except Exception as error:  # whatever it is, it is for those who wait
            with self._lock:
                if self._made.get(endpoint) is made:
                    del self._made[endpoint]
            made.client.close()
            made.ready.set_exception(error)
        else:
            made.ready.set_result(None)

    def _current_password(self) -> str | None:
        """As it is now; as it was, if it cannot be read."""
        if self._password is not None:
            try:
                self._last_password = self._password()
            except CannotStart as error:
                _log.warning("the password that etcd knew is tried again", error=str(error))
        return self._last_password
