"""A local cluster as a real one should be: mutual TLS everywhere, only the design's arrows, and an etcd with users.

What the Helm chart does by Secrets and values is done here by files and variables.
"""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from muster.config.settings import TlsSettings
from muster.etcd.users import Wanted, prepare
from muster.localcluster.certificates import Authority

CLIENT: Final = "client"
"""The certificate of people, who ask by the command line."""
CALLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "cluster-state": ("coordinator", "placement", CLIENT),
    "placement": ("coordinator",),
    "binding": ("coordinator",),
    "lifecycle": ("lifecycle",),
    "coordinator": (CLIENT,),
}
"""Who may call whom. lifecycle is called by the API server alone, and not by gRPC."""

_ETCD: Final = "etcd"
_ETCD_USER: Final = "muster"
_ETCD_PREFIX: Final = "/muster/v1"
_PREPARE_SECONDS: Final = 30.0


def certificate_name(who: str) -> str:
    """The DNS name in the certificate of a service, or of people."""
    return f"muster-{who}"


class Security:
    """The files of one local cluster, in one directory, and what its processes are told of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = Authority(directory)
        self.password_file = directory / "etcd-password"
        self._root_password_file = directory / "etcd-root-password"

    def tls(self, who: str) -> TlsSettings:
        """What a service, "etcd" or the client shows."""
        return self._authority.files(who)

    async def make(self) -> None:
        """Unless they are there. Raises NoCertificate."""
        if self.password_file.exists():
            return
        await self._authority.make()
        await self.renew()
        for file in (self._root_password_file, self.password_file):
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(24) + "\n")

    async def renew(self) -> None:
        """New certificates for everybody, of the same authority. Raises NoCertificate."""
        for who in (*CALLERS, CLIENT):
            await self._authority.issue(who, certificate_name(who))
        await self._authority.issue(_ETCD)

    async def protect(self, etcd_endpoints: str) -> None:
        """Have etcd know its users. Raises CannotPrepare."""
        wanted = Wanted(
            _ETCD_USER,
            self.password_file.read_text().strip(),
            self._root_password_file.read_text().strip(),
            _ETCD_PREFIX,
        )
        await asyncio.to_thread(
            prepare, etcd_endpoints, self.tls("coordinator"), wanted, timeout_seconds=_PREPARE_SECONDS
        )

    def environment(self, service: str, program: str) -> dict[str, str]:
        """For a service, which is run by another name where something else stands in for it."""
        prefix = f"MUSTER_{program.upper().replace('-', '_')}_"
        told = _files(f"{prefix}TLS__", self.tls(service))
        told[f"{prefix}TLS__CLIENTS"] = ",".join(map(certificate_name, CALLERS[service]))
        if service == "coordinator":
            told |= _files(f"{prefix}ETCD_TLS__", self.tls(service))
            told |= {f"{prefix}ETCD_USER": _ETCD_USER, f"{prefix}ETCD_PASSWORD_FILE": str(self.password_file)}
        return told

    @property
    def client_environment(self) -> dict[str, str]:
        """For the command line."""
        return _files("MUSTER_CLI_TLS__", self.tls(CLIENT))


def _files(prefix: str, tls: TlsSettings) -> dict[str, str]:
    return {
        f"{prefix}CERTIFICATE_FILE": str(tls.certificate_file),
        f"{prefix}KEY_FILE": str(tls.key_file),
        f"{prefix}CA_FILE": str(tls.ca_file),
    }
