"""Tokens and kubeconfigs by which the processes of a local cluster authenticate to its API server."""

import csv
import io
import os
import secrets
from pathlib import Path
from typing import Final

from muster.localcluster.apiserver.access.defaults import NODES
from muster.localcluster.apiserver.access.users import ADMINISTRATOR, MASTERS, service_account
from muster.localcluster.apiserver.kubeconfigs import write_kubeconfig
from muster.localcluster.permissions import NAMESPACE, SERVICES, account

KUBELETS: Final = "kubelets"

_TOKEN_BYTES: Final = 24
_ONLY_FOR_OWNER: Final = 0o600


class Identities:
    """Tokens of one cluster. They are created once, so that processes can be restarted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.tokens = {name: secrets.token_urlsafe(_TOKEN_BYTES) for name in (*SERVICES, KUBELETS)}
        """Service -> token."""
        self._admin = secrets.token_urlsafe(_TOKEN_BYTES)

    @property
    def token_file(self) -> Path:
        """Token file of the API server."""
        return self._directory / "tokens.csv"

    def kubeconfig(self, name: str) -> Path:
        """Kubeconfig of a service or of the kubelets."""
        return self._directory / f"{name}.kubeconfig"

    def write(self, *, server: str, services_server: str) -> None:
        """Write all files. `services_server`: URL of the API server for the services, `server` for the kubelets."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [(self._admin, ADMINISTRATOR.name, "", MASTERS), (self.tokens[KUBELETS], "muster-kubelets", "", NODES)]
        for service in SERVICES:
            user = service_account(NAMESPACE, account(service))
            lines.append((self.tokens[service], user.name, "", ",".join(user.groups)))
            write_kubeconfig(self.kubeconfig(service), services_server, self.tokens[service])
        write_kubeconfig(self.kubeconfig(KUBELETS), server, self.tokens[KUBELETS])
        text = io.StringIO()
        csv.writer(text).writerows(lines)
        self.token_file.unlink(missing_ok=True)
        with os.fdopen(os.open(self.token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_FOR_OWNER), "w") as file:
            file.write(text.getvalue())
