"""What binding is told at its start."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import BINDING_PORT, Address, KubeSettings, ServiceSettings


class Settings(ServiceSettings):
    """Read from MUSTER_BINDING_* in the environment."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_BINDING_")

    listen: Address = f"0.0.0.0:{BINDING_PORT}"
    kube: KubeSettings = Field(default_factory=KubeSettings)
    requests_in_flight: int = Field(default=64, ge=1, le=1024)
    """Requests under way at the API server at once, each on its own connection; fewer while it asks for less.

    64 keep an API server busy that answers in 30 ms, and leave most of its default share for others.
    """
    drain_seconds: float = Field(default=10.0, ge=0, le=300)
    """How long running calls may go on after SIGTERM; below the 30 s that Kubernetes gives a pod."""
