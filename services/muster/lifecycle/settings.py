"""Settings of lifecycle."""

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import (
    DEVICES_PORT,
    LIFECYCLE_PORT,
    QUOTA_PORT,
    Address,
    KubeSettings,
    Names,
    ServerCertificate,
    ServiceSettings,
    listens_on,
)

_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class WebhookSettings(ServerCertificate):
    """An admission webhook, with the certificate by which the API server knows it. Without one it is off."""

    listen: Address = f"0.0.0.0:{QUOTA_PORT}"
    """Address of the HTTPS server."""
    client_ca_file: Path | None = None
    """CA of the API server's client certificate; without it, clients are not authenticated."""


class QuotaSettings(WebhookSettings):
    """The webhook that protects quota reserved for PodGroups. Without a certificate no quota is reserved."""


class DeviceSettings(WebhookSettings):
    """The webhook that rejects allocations of devices that another ResourceClaim has; off without a certificate."""

    listen: Address = f"0.0.0.0:{DEVICES_PORT}"
    """Address of the HTTPS server."""


NO_QUOTA_WEBHOOK: Final = QuotaSettings()
"""Quota reservation is off."""
NO_DEVICE_WEBHOOK: Final = DeviceSettings()


class VolcanoSettings(BaseModel):
    """The status of Volcano's PodGroups, which either Muster or Volcano's scheduler writes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    status: Literal["auto", "write", "never"] = "auto"
    """Whether it is written: auto writes unless a scheduler of Volcano holds its leader election Lease or
    has a running pod with the label app: volcano-scheduler."""
    namespace: str = Field(default="volcano-system", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """Namespace of that Lease, which is named volcano, and of that pod."""


VOLCANO: Final = VolcanoSettings()


class Settings(ServiceSettings):
    """Read from MUSTER_LIFECYCLE_* in the environment."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_LIFECYCLE_")

    listen: Address = listens_on(LIFECYCLE_PORT)
    kube: KubeSettings = Field(default_factory=KubeSettings)
    scheduler_names: Names = ("muster",)
    """Values of spec.schedulerName of the pods that Muster schedules."""
    lease_namespace: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")
    """Namespace of the leader election Lease; empty: the pod's namespace, or default outside a cluster."""
    lease_name: str = Field(default="muster-lifecycle", pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
    """Name of the Lease; the same for all replicas of one lifecycle."""
    quota: QuotaSettings = NO_QUOTA_WEBHOOK
    devices: DeviceSettings = NO_DEVICE_WEBHOOK
    volcano: VolcanoSettings = VOLCANO
    provisioning_requests: bool = False
    """Whether gangs with the annotation muster.dev/provisioning-request get ProvisioningRequests."""
    lease_seconds: int = Field(default=6, ge=2, le=300)
    """A leader that does not renew the Lease for this long is replaced. It renews three times as often."""


def lease_namespace(settings: Settings) -> str:
    """Returns the namespace of the Lease."""
    if settings.lease_namespace:
        return settings.lease_namespace
    try:
        return _POD_NAMESPACE.read_text().strip() or "default"
    except OSError:
        return "default"
