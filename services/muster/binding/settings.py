"""Settings of the binding service."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import BINDING_PORT, Address, KubeSettings, ServiceSettings, listens_on


class Settings(ServiceSettings):
    """Read from MUSTER_BINDING_* in the environment."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_BINDING_")

    listen: Address = listens_on(BINDING_PORT)
    coordinator: str = "127.0.0.1:7002"
    """Address of the coordinator, which confirms the epochs of leaders: HOST:PORT, or dns:///NAME:PORT for all replicas
    behind a name.
    """
    kube: KubeSettings = Field(default_factory=KubeSettings)
    requests_in_flight: int = Field(default=64, ge=1, le=1024)
    """Maximum number of concurrent requests to the API server, each on its own connection; fewer while it throttles.

    64 saturate an API server that answers in 30 ms, and leave most of its default concurrency share to other clients.
    """
    drain_seconds: float = Field(default=10.0, ge=0, le=300)
    """How long running calls may continue after SIGTERM; below the 30 s that Kubernetes gives a pod."""
