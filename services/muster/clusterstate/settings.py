"""What cluster-state is told at its start."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import CLUSTER_STATE_PORT, Address, KubeSettings, Names, ServiceSettings


class Settings(ServiceSettings):
    """Read from MUSTER_CLUSTER_STATE_* in the environment."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_CLUSTER_STATE_")

    listen: Address = f"0.0.0.0:{CLUSTER_STATE_PORT}"
    kube: KubeSettings = Field(default_factory=KubeSettings)
    scheduler_names: Names = ("muster",)
    """Pods with one of these in spec.schedulerName are ours."""
