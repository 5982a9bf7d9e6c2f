"""Sets up etcd for Muster: authentication, root, and a user with permissions below the prefix only."""

import time
from dataclasses import dataclass
from typing import Any, Final

import grpc
import structlog

from muster.config.settings import CannotStart, TlsSettings
from muster.etcd.client_pool import AUTHENTICATION_SECONDS
from muster.etcd.connection import parse_endpoints
from muster.etcd.etcd3_import import etcdrpc
from muster.retry.retrying import Backoff
from muster.rpc.credentials import Certificates, channel_credentials

ROOT: Final = "root"
"""etcd's superuser, required for authentication."""

_CALL_SECONDS: Final = AUTHENTICATION_SECONDS  # most calls check or create a password hash
_READ_AND_WRITE: Final = 2
_NOT_ENABLED: Final = "authentication is not enabled"
_WRONG_PASSWORD: Final = "authentication failed"  # noqa: S105 (etcd's message)
_EXISTS: Final = "already exists"
_REFUSALS: Final = frozenset(
    {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED}
)

_log = structlog.get_logger()


class CannotSetUpUsers(CannotStart):
    """etcd's users could not be set up; the message has the reason and what to do."""


@dataclass(frozen=True)
class UserSetup:
    """The users and permissions to set up. Passwords never appear in logs or errors."""

    user: str
    password: str
    root_password: str
    prefix: str
    """The user may read and write below it."""

    def __repr__(self) -> str:
        return f"UserSetup(user={self.user!r}, prefix={self.prefix!r})"


class EtcdUsers:
    """Sets up users through one etcd member, unauthenticated until authentication is enabled, then as root."""

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

    def set_up(self, setup: UserSetup) -> None:
        """Create what is missing. Raises CannotSetUpUsers, and RpcError if etcd does not answer."""
        enabled = self._authenticate_as_root(setup)
        if not enabled:
            self._set_user(ROOT, setup.root_password)
            self._ask("UserGrantRole", user=ROOT, role=ROOT)
        self._set_role(setup)
        if not enabled or self._token(setup.user, setup.password) is None:
            self._set_user(setup.user, setup.password)
        self._ask("UserGrantRole", user=setup.user, role=setup.user)
        if not enabled:
            self._ask("AuthEnable")
        _log.info("etcd_users_set_up", user=setup.user, prefix=setup.prefix, authentication="on" if enabled else "new")

    def _authenticate_as_root(self, setup: UserSetup) -> bool:
        """Whether authentication is enabled; if so, authenticate as root."""
        try:
            token = self._token(ROOT, setup.root_password)
        except grpc.RpcError as error:
            if _NOT_ENABLED in _details(error):
                return False
            raise
        if token is None:
            raise CannotSetUpUsers(
                "the given password of root is wrong: give the right one, or change it with `etcdctl user passwd root`"
            )
        self._metadata = (("token", token),)
        return True

    def _token(self, user: str, password: str) -> str | None:
        """An authentication token; None if the user does not exist or the password is wrong."""
        request = etcdrpc.AuthenticateRequest(name=user, password=password)
        try:
            return str(self._calls.Authenticate(request, timeout=_CALL_SECONDS).token)
        except grpc.RpcError as error:
            if _WRONG_PASSWORD in _details(error):
                return None
            raise

    def _set_user(self, name: str, password: str) -> None:
        if not self._ask("UserAdd", name=name, password=password):
            self._ask("UserChangePassword", name=name, password=password)

    def _set_role(self, setup: UserSetup) -> None:
        """Create a role with the user's name that may read and write below the prefix only."""
        self._ask("RoleAdd", name=setup.user)
        key, end = _range_below(setup.prefix)
        found = self._calls.RoleGet(
            etcdrpc.AuthRoleGetRequest(role=setup.user), timeout=_CALL_SECONDS, metadata=self._metadata
        )
        for each in found.perm:
            if (each.key, each.range_end) != (key, end):
                revoked = {"key": each.key, "range_end": each.range_end}
                request = etcdrpc.AuthRoleRevokePermissionRequest(role=setup.user, **revoked)
                self._calls.RoleRevokePermission(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        permission = {"permType": _READ_AND_WRITE, "key": key, "range_end": end}
        self._ask("RoleGrantPermission", name=setup.user, perm=permission)

    def _ask(self, method: str, **fields: Any) -> bool:
        """Call a method; False: the object exists already."""
        request = getattr(etcdrpc, "AuthEnableRequest" if method == "AuthEnable" else f"Auth{method}Request")(**fields)
        try:
            getattr(self._calls, method)(request, timeout=_CALL_SECONDS, metadata=self._metadata)
        except grpc.RpcError as error:
            if _EXISTS not in _details(error):
                raise
            return False
        return True


def set_up_users(
    endpoints: str,
    tls: TlsSettings,
    setup: UserSetup,
    *,
    timeout_seconds: float,
) -> None:
    """Set up users through any member that answers; waits until one does. Raises CannotSetUpUsers, BadEndpoints."""
    deadline = time.monotonic() + timeout_seconds
    addresses = parse_endpoints(endpoints)
    backoff = Backoff()
    while True:
        causes = []
        for address in addresses:
            users = EtcdUsers(address, tls)
            try:
                users.set_up(setup)
            except grpc.RpcError as error:
                code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
                if code in _REFUSALS:
                    raise CannotSetUpUsers(f"etcd at {address} rejected the setup: {_details(error)}") from error
                causes.append(f"{address}: {code.name}: {_details(error)}")
            else:
                return
            finally:
                users.close()
        if time.monotonic() > deadline:
            raise CannotSetUpUsers(f"etcd did not answer within {timeout_seconds:g} s ({'; '.join(causes)})")
        _log.info("etcd_unreachable", causes=causes)
        time.sleep(backoff.next_seconds())


def _range_below(prefix: str) -> tuple[bytes, bytes]:
    """Start and end of the key range below a prefix."""
    key = prefix.encode() + b"/"
    return key, key[:-1] + bytes([key[-1] + 1])


def _details(error: grpc.RpcError) -> str:
    return (error.details() or "") if isinstance(error, grpc.Call) else str(error)
