"""Prepares etcd for Muster: authentication, root, and a user who has rights below the prefix only."""

import time
from dataclasses import dataclass
from typing import Any, Final

import grpc
import structlog

from muster.config.settings import CannotStart, TlsSettings
from muster.etcd.client_pool import SIGN_IN_SECONDS
from muster.etcd.connection import parse_endpoints
from muster.etcd.etcd3_import import etcdrpc
from muster.retry.retrying import Backoff
from muster.rpc.credentials import Certificates, channel_credentials

ROOT: Final = "root"
"""etcd's name for who may do everything; authentication cannot be without it."""

_CALL_SECONDS: Final = SIGN_IN_SECONDS  # most of them check or make the hash of a password
_READ_AND_WRITE: Final = 2
_NOT_ENABLED: Final = "authentication is not enabled"
_WRONG_PASSWORD: Final = "authentication failed"  # noqa: S105 (what etcd says)
_THERE_ALREADY: Final = "already exists"
_REFUSALS: Final = frozenset(
    {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED}
)

_log = structlog.get_logger()


class CannotPrepare(CannotStart):
    """etcd's users are not as they should be, and this could not change it; says why and what to do."""


@dataclass(frozen=True)
class Wanted:
    """What there should be. Passwords are never told in logs or errors."""

    user: str
    password: str
    root_password: str
    prefix: str
    """Below it, the user may read and write."""

    def __repr__(self) -> str:
        return f"Wanted(user={self.user!r}, prefix={self.prefix!r})"


class EtcdUsers:
    """Calls about users to one of etcd's members, without authentication until it is on, then as root."""

    def __init__(self, endpoint: str, tls: TlsSettings) -> None:
        if tls.files is None:
            self._channel = grpc.insecure_channel(endpoint)
        else:
            credentials = channel_credentials(Certificates(tls.files).pem)
            self._channel = grpc.secure_channel(endpoint, credentials)
        self._calls = etcdrpc.AuthStub(self._channel)
        self._metadata: tuple[tuple[str, str], ...] = ()

    def close(self) -> None:
        self._channel.close()

    def prepare(self, wanted: Wanted) -> None:
        """Make it so; what is so already is left alone. Raises CannotPrepare, and RpcError if etcd does not answer."""
        enabled = self._enter(wanted)
        if not enabled:
            self._set_user(ROOT, wanted.root_password)
            self._ask("UserGrantRole", user=ROOT, role=ROOT)
        self._set_role(wanted)
        if not enabled or self._token(wanted.user, wanted.password) is None:
            self._set_user(wanted.user, wanted.password)
        self._ask("UserGrantRole", user=wanted.user, role=wanted.user)
        if not enabled:
            self._ask("AuthEnable")
        _log.info("etcd is prepared", user=wanted.user, prefix=wanted.prefix, authentication="on" if enabled else "new")

    def _enter(self, wanted: Wanted) -> bool:
        """Whether authentication is on already; then this goes on as root."""
        try:
            token = self._token(ROOT, wanted.root_password)
        except grpc.RpcError as error:
            if _NOT_ENABLED in _said(error):
                return False
            raise
        if token is None:
            raise CannotPrepare(
                "etcd has another password for root than the one given: give the right one, or change it with "
                "`etcdctl user passwd root`"
            )
        self._metadata = (("token", token),)
        return True

    def _token(self, user: str, password: str) -> str | None:
        """None: there is no such user, or the password is another."""
        request = etcdrpc.AuthenticateRequest(name=user, password=password)
        try:
            return str(self._calls.Authenticate(request, timeout=_CALL_SECONDS).token)
        except grpc.RpcError as error:
            if _WRONG_PASSWORD in _said(error):
                return None
            raise

    def _set_user(self, name: str, password: str) -> None:
        if not self._ask("UserAdd", name=name, password=password):
            self._ask("UserChangePassword", name=name, password=password)

    def _set_role(self, wanted: Wanted) -> None:
        """A role of the user's name that may read and write below the prefix, and nothing else."""
        self._ask("RoleAdd", name=wanted.user)
        key, end = _range_below(wanted.prefix)
        found = self._calls.RoleGet(
            etcdrpc.AuthRoleGetRequest(role=wanted.user), timeout=_CALL_SECONDS, metadata=self._metadata
        )
        for each in found.perm:
            if (each.key, each.range_end) != (key, end):
                revoked = {"key": each.key, "range_end": each.range_end}
                request = etcdrpc.AuthRoleRevokePermissionRequest(role=wanted.user, **revoked)
                self._calls.RoleRevokePermission(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        permission = {"permType": _READ_AND_WRITE, "key": key, "range_end": end}
        self._ask("RoleGrantPermission", name=wanted.user, perm=permission)

    def _ask(self, method: str, **fields: Any) -> bool:
        """False: what should be made is there already."""
        request = getattr(etcdrpc, "AuthEnableRequest" if method == "AuthEnable" else f"Auth{method}Request")(**fields)
        try:
            getattr(self._calls, method)(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        except grpc.RpcError as error:
            if _THERE_ALREADY not in _said(error):
                raise
            return False
        return True


def prepare(
    endpoints: str,
    tls: TlsSettings,
    wanted: Wanted,
    *,
    timeout_seconds: float,
) -> None:
    """Prepare etcd by whichever member answers; waits until one does. Raises CannotPrepare, BadEndpoints."""
    deadline = time.monotonic() + timeout_seconds
    addresses = parse_endpoints(endpoints)
    backoff = Backoff()
    while True:
        causes = []
        for address in addresses:
            users = EtcdUsers(address, tls)
            try:
                users.prepare(wanted)
            except grpc.RpcError as error:
                code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
                if code in _REFUSALS:
                    raise CannotPrepare(f"etcd at {address} refused: {_said(error)}") from error
                causes.append(f"{address}: {code.name}: {_said(error)}")
            else:
                return
            finally:
                users.close()
        if time.monotonic() > deadline:
            raise CannotPrepare(f"etcd gave no answer within {timeout_seconds:g} s ({'; '.join(causes)})")
        _log.info("etcd does not answer yet", causes=causes)
        time.sleep(backoff.next_seconds())


def _range_below(prefix: str) -> tuple[bytes, bytes]:
    """From the first key below a prefix to the first one behind."""
    key = prefix.encode() + b"/"
    return key, key[:-1] + bytes([key[-1] + 1])


def _said(error: grpc.RpcError) -> str:
    return (error.details() or "") if isinstance(error, grpc.Call) else str(error)
