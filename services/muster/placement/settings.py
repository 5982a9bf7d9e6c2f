"""Settings of the placement service."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import PLACEMENT_PORT, Address, ServiceSettings, listens_on


class Settings(ServiceSettings):
    """Read from MUSTER_PLACEMENT_* and flags."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_PLACEMENT_", env_nested_delimiter="__", frozen=True)

    listen: Address = listens_on(PLACEMENT_PORT)
    cluster_state: str = "127.0.0.1:7001"
    """Address of cluster-state: HOST:PORT, or dns:///NAME:PORT for all replicas behind a name."""
    seconds_per_group: float = Field(default=5.0, gt=0)
    """Time after which the search for one group ends without a placement; less if groups share the request."""
