"""Kubeconfig files, and the certificate files of an HTTPS server."""

import base64
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_NAME: Final = "muster-local"
_ONLY_FOR_OWNER: Final = 0o600


class BadCertificates(ValueError):
    """The files cannot be used for HTTPS; says why."""


@dataclass(frozen=True)
class Certificates:
    """PEM files of an HTTPS server: certificate, key, and the authority for its clients."""

    certificate_file: Path
    key_file: Path
    authority_file: Path

    def context(self) -> ssl.SSLContext:
        """Raises BadCertificates."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate_file, self.key_file)
            self.authority_file.read_bytes()
        except OSError as error:  # ssl.SSLError is one
            files = f"{self.certificate_file}, {self.key_file} and {self.authority_file}"
            raise BadCertificates(f"HTTPS cannot be served with {files}: {error}") from error
        return context


def write_kubeconfig(path: Path, server: str, token: str, authority: Path | None = None) -> None:
    """Write a kubeconfig atomically, readable by its owner only since it contains the token."""
    named: dict[str, Any] = {"name": _NAME}
    cluster = {"server": server}
    if authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [named | {"cluster": cluster}],
        "users": [named | {"user": {"token": token} if token else {}}],
        "contexts": [named | {"context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_FOR_OWNER), "w") as file:
        yaml.safe_dump(config, file, sort_keys=False)
    partial.replace(path)
