"""Quota webhook of a local cluster: its certificate and its ValidatingWebhookConfiguration."""

import base64
from pathlib import Path
from typing import Any, Final

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.certificates import Authority
from muster.localcluster.manifests import Manifest, apply_manifests

NAME: Final = "quota.muster.dev"
PATH: Final = "/quota"

_CONFIGURATION: Final = "muster-quota"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_CALL_SECONDS: Final = 10.0
_WEBHOOK: Final = "webhook"


class QuotaWebhook:
    """Address and files of the webhook that lifecycle serves."""

    def __init__(self, directory: Path, address: str) -> None:
        self.address = address
        self._authority = Authority(directory)
        self.certificate, self.key = directory / f"{_WEBHOOK}.crt", directory / f"{_WEBHOOK}.key"

    @property
    def flags(self) -> list[str]:
        """Flags of lifecycle."""
        files = ("--quota-certificate-file", str(self.certificate), "--quota-key-file", str(self.key))
        return ["--quota-listen", self.address, *files]

    async def create_certificate(self) -> None:
        """Create the certificate, unless it exists. Raises NoCertificate."""
        if not self.certificate.exists():
            await self._authority.create()
            await self._authority.issue(_WEBHOOK)

    async def register(self, kubeconfig: Path) -> None:
        """Have the API server call the webhook for new pods."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
        try:
            await apply_manifests(session, [Manifest(self.configuration())])
        finally:
            await session.close()

    async def unregister(self, kubeconfig: Path) -> None:
        """Remove the webhook from an API server that keeps running. Raises KubeUnreachable."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
        try:
            await session.request("DELETE", f"{_CONFIGURATIONS}/{_CONFIGURATION}", timeout_seconds=_CALL_SECONDS)
        finally:
            await session.close()

    def configuration(self) -> dict[str, Any]:
        """The configuration of deploy/webhooks, with an address for the service and for all namespaces."""
        webhook = {
            "name": NAME,
            "clientConfig": {
                "url": f"https://{self.address}{PATH}",
                "caBundle": base64.b64encode(self._authority.certificate.read_bytes()).decode(),
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
