"""Secured local cluster: mutual TLS between all processes, allowed callers per service, and etcd users.

Files and environment variables take the place of the Helm chart's Secrets and values.
"""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from muster.config.settings import TlsSettings
from muster.etcd.users import UserSetup, set_up_users
from muster.localcluster.certificates import Authority

CLIENT: Final = "client"
"""Certificate of the command line."""
CALLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster-state": ("coordinator", "placement", "forecast", "console", CLIENT),
    "placement": ("coordinator",),
    "binding": ("coordinator",),
    "lifecycle": ("lifecycle",),
    "coordinator": ("binding", "forecast", "console", CLIENT),
    "forecast": ("console", CLIENT),
    "console": (),
}
"""Service -> allowed callers by gRPC. The API server calls lifecycle, and browsers the console."""

_ETCD: Final = "etcd"
_ETCD_USER: Final = "muster"
_ETCD_PREFIX: Final = "/muster/v1"
_PREPARE_SECONDS: Final = 30.0


def certificate_name(owner: str) -> str:
    """DNS name in the certificate of a service or of the client."""
    return f"muster-{owner}"


class Security:
    """Certificates and passwords of one local cluster, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = Authority(directory)
        self.password_file = directory / "etcd-password"
        self._root_password_file = directory / "etcd-root-password"

    def tls(self, owner: str) -> TlsSettings:
        """Files of a service, "etcd" or the client."""
        return self._authority.files(owner)

    async def create(self) -> None:
        """Create all files, unless they exist. Raises NoCertificate."""
        if self.password_file.exists():
            return
        await self._authority.create()
        await self.renew()
        for file in (self._root_password_file, self.password_file):
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(24) + "\n")

    async def renew(self) -> None:
        """Issue new certificates for all, by the same authority. Raises NoCertificate."""
        for owner in (*CALLERS, CLIENT):
            await self._authority.issue(owner, certificate_name(owner))
        await self._authority.issue(_ETCD)

    async def enable_etcd_authentication(self, etcd_endpoints: str) -> None:
        """Create etcd's users and enable authentication. Raises CannotSetUpUsers."""
        user_setup = UserSetup(
            _ETCD_USER,
            self.password_file.read_text().strip(),
            self._root_password_file.read_text().strip(),
            _ETCD_PREFIX,
        )
        await asyncio.to_thread(
            set_up_users, etcd_endpoints, self.tls("coordinator"), user_setup, timeout_seconds=_PREPARE_SECONDS
        )

    def environment(self, service: str, program: str) -> dict[str, str]:
        """Environment of a service, run by the program of that name in `muster run`."""
        prefix = f"MUSTER_{program.upper().replace('-', '_')}_"
        environment = _files(f"{prefix}TLS__", self.tls(service))
        if callers := CALLERS[service]:
            environment[f"{prefix}TLS__CLIENTS"] = ",".join(map(certificate_name, callers))
        if service == "coordinator":
            environment |= _files(f"{prefix}ETCD_TLS__", self.tls(service))
            environment |= {f"{prefix}ETCD_USER": _ETCD_USER, f"{prefix}ETCD_PASSWORD_FILE": str(self.password_file)}
        return environment

    @property
    def client_environment(self) -> dict[str, str]:
        """Environment of the command line."""
        return _files("MUSTER_CLI_TLS__", self.tls(CLIENT))


def _files(prefix: str, tls: TlsSettings) -> dict[str, str]:
    return {
        f"{prefix}CERTIFICATE_FILE": str(tls.certificate_file),
        f"{prefix}KEY_FILE": str(tls.key_file),
        f"{prefix}CA_FILE": str(tls.ca_file),
    }
