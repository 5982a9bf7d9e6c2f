"""Webhooks of a local cluster: certificates and ValidatingWebhookConfigurations."""

import base64
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.certificates import Authority
from muster.localcluster.manifests import Manifest, apply_manifests

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_CALL_SECONDS: Final = 10.0
_FILES: Final = "webhook"


class WebhookKind(Struct, frozen=True):
    """A webhook of lifecycle, as deploy/webhooks has it. `name` is that in its flags and its path."""

    name: str
    rule: dict[str, list[str]]
    failure_policy: str
    match_conditions: tuple[dict[str, str], ...] = ()

    @property
    def path(self) -> str:
        return f"/{self.name}"


QUOTA: Final = WebhookKind(
    "quota",
    {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
    "Ignore",
)
DEVICES: Final = WebhookKind(
    "devices",
    {
        "operations": ["UPDATE"],
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "resources": ["resourceclaims/status"],
    },
    "Fail",
    (
        {
            "name": "allocates",
            "expression": (
                "has(object.status) && has(object.status.allocation) && (!has(oldObject.status) || "
                "!has(oldObject.status.allocation) || object.status.allocation != oldObject.status.allocation)"
            ),
        },
    ),
)


class LocalWebhook:
    """Address and files of a webhook that lifecycle serves."""

    def __init__(self, kind: WebhookKind, directory: Path, address: str) -> None:
        self.kind, self.address = kind, address
        self._authority = Authority(directory)
        self.certificate, self.key = directory / f"{_FILES}.crt", directory / f"{_FILES}.key"

    @property
    def flags(self) -> list[str]:
        """Flags of lifecycle."""
        flag = f"--{self.kind.name}"
        files = (f"{flag}-certificate-file", str(self.certificate), f"{flag}-key-file", str(self.key))
        return [f"{flag}-listen", self.address, *files]

    async def create_certificate(self) -> None:
        """Create the certificate, unless it exists. Raises NoCertificate."""
        if not self.certificate.exists():
            await self._authority.create()
            await self._authority.issue(_FILES)

    async def register(self, kubeconfig: Path, *, conditions: bool) -> None:
        """Have the API server call the webhook; only under its match conditions, if these can be evaluated."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
        try:
            await apply_manifests(session, [Manifest(self.configuration(conditions=conditions))])
        finally:
            await session.close()

    async def unregister(self, kubeconfig: Path) -> None:
        """Remove the webhook from an API server that keeps running. Raises KubeUnreachable."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
        try:
            await session.request("DELETE", f"{_CONFIGURATIONS}/{self._name}", timeout_seconds=_CALL_SECONDS)
        finally:
            await session.close()

    @property
    def _name(self) -> str:
        return f"muster-{self.kind.name}"

    def configuration(self, *, conditions: bool = True) -> dict[str, Any]:
        """The configuration of deploy/webhooks, with an address for the service and for all namespaces."""
        webhook = {
            "name": f"{self.kind.name}.muster.dev",
            "clientConfig": {
                "url": f"https://{self.address}{self.kind.path}",
                "caBundle": base64.b64encode(self._authority.certificate.read_bytes()).decode(),
            },
            "rules": [self.kind.rule],
            "matchConditions": list(self.kind.match_conditions) if conditions else [],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": self.kind.failure_policy,
            "timeoutSeconds": 5,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self._name},
            "webhooks": [webhook],
        }
