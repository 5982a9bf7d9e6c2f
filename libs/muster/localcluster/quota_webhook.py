"""The webhook that guards quota, for a local cluster: its certificate, and what the API server is told of it."""

import asyncio
import base64
import shutil
from pathlib import Path
from typing import Any, Final

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.manifests import Manifest, apply_manifests

NAME: Final = "quota.muster.dev"
PATH: Final = "/quota"

_CONFIGURATION: Final = "muster-quota"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_CALL_SECONDS: Final = 10.0
_DAYS: Final = "3650"
_EXTENSIONS: Final = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n"
_ELLIPTIC: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class NoCertificate(RuntimeError):
    """openssl did not make a certificate; the message has what it said."""


def can_make_certificates() -> bool:
    """Openssl is installed."""
    return shutil.which("openssl") is not None


class QuotaWebhook:
    """What lifecycle serves it with, and the API server calls it by."""

    def __init__(self, directory: Path, address: str) -> None:
        self.address = address
        self.certificate, self.key = directory / "webhook.crt", directory / "webhook.key"
        self._directory = directory
        self._authority, self._authority_key = directory / "ca.crt", directory / "ca.key"

    @property
    def flags(self) -> list[str]:
        """For lifecycle."""
        files = ("--quota-certificate-file", str(self.certificate), "--quota-key-file", str(self.key))
        return ["--quota-listen", self.address, *files]

    async def make_certificate(self) -> None:
        """Unless it is there. Raises NoCertificate."""
        if self.certificate.exists():
            return
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        extensions, request = self._directory / "extensions", self._directory / "webhook.csr"
        extensions.write_text(_EXTENSIONS)
        authority = ("-keyout", str(self._authority_key), "-out", str(self._authority))
        await _openssl("req", "-x509", *_ELLIPTIC, "-days", _DAYS, *authority, "-subj", "/CN=muster local")
        await _openssl("req", *_ELLIPTIC, "-keyout", str(self.key), "-out", str(request), "-subj", "/CN=muster-quota")
        signed_by = ("-CA", str(self._authority), "-CAkey", str(self._authority_key), "-CAcreateserial")
        files = ("-in", str(request), "-extfile", str(extensions), "-out", str(self.certificate))
        await _openssl("x509", "-req", *signed_by, "-days", _DAYS, *files)

    async def register(self, kubeconfig: Path) -> None:
        """Have the API server ask it about new pods."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
        try:
            await apply_manifests(session, [Manifest(self.configuration())])
        finally:
            await session.close()

    async def unregister(self, kubeconfig: Path) -> None:
        """Have an API server that goes on running ask it no more. Raises KubeUnreachable."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
        try:
            await session.request("DELETE", f"{_CONFIGURATIONS}/{_CONFIGURATION}", timeout_seconds=_CALL_SECONDS)
        finally:
            await session.close()

    def configuration(self) -> dict[str, Any]:
        """As deploy/webhooks has it for a real cluster, but by address, and for all namespaces."""
        webhook = {
            "name": NAME,
            "clientConfig": {
                "url": f"https://{self.address}{PATH}",
                "caBundle": base64.b64encode(self._authority.read_bytes()).decode(),
            },
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Ignore",
            "timeoutSeconds": 5,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": _CONFIGURATION},
            "webhooks": [webhook],
        }


async def _openssl(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "openssl", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode != 0:
        raise NoCertificate(f"openssl {arguments[0]} failed: {said.decode(errors='replace').strip()[-500:]}")
