"""Settings of forecast."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import FORECAST_PORT, Address, ServiceSettings, listens_on


class Settings(ServiceSettings):
    """Settings of forecast, from MUSTER_FORECAST_* and flags."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_FORECAST_", env_nested_delimiter="__", frozen=True)

    listen: Address = listens_on(FORECAST_PORT)
    cluster_state: str = "127.0.0.1:7001"
    """Address of cluster-state: HOST:PORT, or dns:///NAME:PORT for all replicas behind a name."""
    coordinator: str = "127.0.0.1:7002"
    """Addresses of the coordinator's replicas, separated by commas; the one that leads answers."""
    max_seconds: float = Field(default=30.0, gt=0, le=600)
    """Longest time of an answer, and again of the search for changes that would help."""
    max_pods: int = Field(default=10_000, ge=1)
    """Most pods of a question."""
    max_waiting: int = Field(default=8, ge=0)
    """Questions that wait for their turn; further ones are refused. One is answered at a time."""
    starts_for_seconds: float = Field(default=30.0, ge=0)
    """Time for which expected starts are not computed again."""
    horizon_seconds: float = Field(default=7 * 86_400.0, gt=0)
    """How far expected starts look ahead."""
