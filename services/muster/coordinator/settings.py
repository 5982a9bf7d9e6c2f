"""What the coordinator is told at its start."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import COORDINATOR_PORT, PLAIN_TEXT, Address, CannotStart, ServiceSettings, TlsSettings
from muster.coordinator.core.rules import Rules


class Settings(ServiceSettings):
    """Settings of the coordinator, from MUSTER_COORDINATOR_* and flags."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_COORDINATOR_", env_nested_delimiter="__", frozen=True)

    listen: Address = f"0.0.0.0:{COORDINATOR_PORT}"
    cluster_state: str = "127.0.0.1:7001"
    """Address of cluster-state: HOST:PORT, or dns:///NAME:PORT for all replicas behind a name."""
    placement: str = "127.0.0.1:7003"
    """Address of placement, as cluster_state; of several replicas all addresses, separated by commas, or the name for
    all of them. Each is asked one thing at a time, and all at the same time.
    """
    placement_server_name: str = ""
    """Name that the certificate of placement is for, if not that of its address, as of one that is not Muster's."""
    binding: str = "127.0.0.1:7004"
    """Address of binding, as cluster_state."""
    etcd: str = "127.0.0.1:2379"
    """etcd's client endpoints: HOST:PORT[,HOST:PORT...]."""
    etcd_tls: TlsSettings = PLAIN_TEXT
    """As what etcd knows the coordinator, and by whom etcd's certificate is signed."""
    etcd_user: str | None = None
    """User of etcd, where it demands one besides or instead of a certificate."""
    etcd_password_file: Path | None = None
    """File with that user's password; a password itself is never a setting, since settings are seen in `ps`."""
    etcd_prefix: str = Field(default="/muster/v1", pattern=r"^/.*[^/]$")
    """Below which keys are kept; another one per coordinator where several share an etcd."""
    lease_seconds: int = Field(default=3, ge=2, le=60)
    """A leader that is not heard of for so long is replaced."""
    starvation_after_seconds: float = Field(default=Rules.starvation_after_seconds, gt=0)
    """The head of the queue gets room kept for it when it could not be placed for so long."""
    repair_timeout_seconds: float = Field(default=Rules.repair_timeout_seconds, gt=0)
    """A started gang below its minimum that cannot be completed for so long goes by its repair policy."""
    solve_timeout_seconds: float = Field(default=10.0, gt=0)
    """How long placement may take for one batch."""
    bind_timeout_seconds: float = Field(default=60.0, gt=0)
    """How long binding may take for the pods of one gang; what has no result by then is sent again."""

    @property
    def rules(self) -> Rules:
        """What the core is told of them."""
        return Rules(self.starvation_after_seconds, self.repair_timeout_seconds)


def read_password(file: Path | None) -> str | None:
    """What the file says, without its last line break. Raises NoPassword."""
    if file is None:
        return None
    try:
        return file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NoPassword(f"the password of etcd's user cannot be read from {str(file)!r}: {error}") from error


class NoPassword(CannotStart):
    """The file that should hold a password cannot be read."""
