"""What lifecycle is told at its start."""

from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import SettingsConfigDict

from muster.config.settings import LIFECYCLE_PORT, QUOTA_PORT, Address, KubeSettings, Names, ServiceSettings

_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class QuotaSettings(BaseModel):
    """The webhook that guards quota reserved for PodGroups. Without a certificate nothing is reserved."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    listen: Address = f"0.0.0.0:{QUOTA_PORT}"
    """Where it serves HTTPS."""
    certificate_file: Path | None = None
    """Its certificate (PEM), for the name by which the API server calls it. Read again when it changes."""
    key_file: Path | None = None
    """The certificate's private key."""
    client_ca_file: Path | None = None
    """Who signs the certificate by which the API server shows itself; if not given, anybody may ask."""

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.certificate_file is None) is not (self.key_file is None):
            missing = "key_file" if self.key_file is None else "certificate_file"
            raise ValueError(f"a certificate is of use only with its key: {missing} is missing, too")
        return self


NO_WEBHOOK: Final = QuotaSettings()
"""No quota is reserved."""


class Settings(ServiceSettings):
    """Read from MUSTER_LIFECYCLE_* in the environment."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_LIFECYCLE_")

    listen: Address = f"0.0.0.0:{LIFECYCLE_PORT}"
    kube: KubeSettings = Field(default_factory=KubeSettings)
    scheduler_names: Names = ("muster",)
    """Pods with one of these in spec.schedulerName are ours."""
    lease_namespace: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")
    """Where the Lease is that says which replica leads; empty: the pod's own namespace, outside a cluster default."""
    lease_name: str = Field(default="muster-lifecycle", pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
    """Its name; all replicas of one lifecycle have the same."""
    quota: QuotaSettings = NO_WEBHOOK
    lease_seconds: int = Field(default=6, ge=2, le=300)
    """A leader that is not heard of for so long is replaced. It renews three times as often."""


def lease_namespace(settings: Settings) -> str:
    """The namespace that the settings mean."""
    if settings.lease_namespace:
        return settings.lease_namespace
    try:
        return _POD_NAMESPACE.read_text().strip() or "default"
    except OSError:
        return "default"
