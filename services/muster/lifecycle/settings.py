"""What lifecycle is told at its start."""

from pathlib import Path
from typing import Final

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import LIFECYCLE_PORT, Address, KubeSettings, Names, ServiceSettings

_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


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
