"""Settings of the coordinator."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from muster.config.settings import (
    COORDINATOR_PORT,
    PLAIN_TEXT,
    Address,
    CannotStart,
    ServiceSettings,
    TlsSettings,
    listens_on,
)
from muster.coordinator.core.events import Rules


class Settings(ServiceSettings):
    """Read from MUSTER_COORDINATOR_* and flags."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_COORDINATOR_", env_nested_delimiter="__", frozen=True)

    listen: Address = listens_on(COORDINATOR_PORT)
    cluster_state: str = "127.0.0.1:7001"
    """Address of cluster-state: HOST:PORT, or dns:///NAME:PORT for all replicas behind a name."""
    placement: str = "127.0.0.1:7003"
    """Address of placement, as cluster_state. For several replicas: their addresses separated by commas, or one DNS
    name for all. Each replica gets one call at a time; all are used concurrently.
    """
    placement_server_name: str = ""
    """Name in the certificate of placement, if it is not that of its address, as for a placement of your own."""
    binding: str = "127.0.0.1:7004"
    """Address of binding, as cluster_state."""
    etcd: str = "127.0.0.1:2379"
    """etcd's client endpoints: HOST:PORT[,HOST:PORT...]."""
    etcd_tls: TlsSettings = PLAIN_TEXT
    """Client certificate for etcd, and the authority that signed etcd's certificate."""
    etcd_user: str | None = None
    """User name for etcd, if it requires one besides or instead of a certificate."""
    etcd_password_file: Path | None = None
    """File with that user's password; the password itself is never a setting, since `ps` shows settings."""
    etcd_prefix: str = Field(default="/muster/v1", pattern=r"^/.*[^/]$")
    """Prefix of all keys; coordinators that share an etcd need different ones."""
    lease_seconds: int = Field(default=3, ge=2, le=60)
    """Time without renewal after which a leader is replaced."""
    advertise_host: str = ""
    """Name or IP address at which the other replicas reach this one. They stay connected to the leader, and replace it
    as soon as its process has ended; without it, when its lease expires.
    """
    replica_server_name: str = ""
    """Name in the certificates of the other replicas, if it is not that of their address."""
    starvation_after_seconds: float = Field(default=Rules.starvation_after_seconds, gt=0)
    """Time without a placement after which capacity is reserved for the head of the queue."""
    repair_timeout_seconds: float = Field(default=Rules.repair_timeout_seconds, gt=0)
    """Time below its minimum after which the repair policy of a started gang applies."""
    eviction_timeout_seconds: float = Field(default=Rules.eviction_timeout_seconds, gt=0)
    """Time after which pods that were evicted for a gang must have ended, or other victims are chosen; more than the
    longest grace period on which preemption should wait.
    """
    reservation_timeout_seconds: float = Field(default=Rules.reservation_timeout_seconds, gt=0)
    """Time after which capacity that is reserved for a starving gang is given up if pods without a known end still run.
    """
    max_reserved_share: float = Field(default=Rules.max_reserved_share, gt=0, le=1)
    """Share of each resource of the cluster that may be reserved for a starving gang."""
    max_waiting_time_seconds: float = Field(default=Rules.max_waiting_time_seconds, gt=0)
    """Longest time for which NonStrict gangs hold reservations, whatever waiting-time they declare."""
    max_held_share: float = Field(default=Rules.max_held_share, gt=0, le=1)
    """Share of each resource of the cluster that gangs may hold in all while they wait for the rest of their members.
    """
    growth_hold_off_seconds: float = Field(default=Rules.growth_hold_off_seconds, gt=0)
    """Time for which a gang of which preemption took surplus pods gets no others, doubling with every time in a row."""
    max_growth_hold_off_seconds: float = Field(default=Rules.max_growth_hold_off_seconds, gt=0)
    """Longest such time; a time as long without preemption ends the row."""
    growth_batch_seconds: float = Field(default=Rules.growth_batch_seconds, gt=0)
    """Time after which pending pods above the minimum of a running gang are placed even if not all of them fit."""
    evictions_per_hour: int = Field(default=Rules.evictions_per_hour, ge=0)
    """Pods that preemption evicts in the whole cluster per hour, about; 0: no limit."""
    trust_declared_priority: bool = Rules.trust_declared_priority
    """Whether the priority of PodGroups, SchedulingSpecs and other group-level objects is a right to preempt. Admission
    checks only the priority of pods, against ResourceQuotas with a scope of priority classes.
    """
    solve_timeout_seconds: float = Field(default=10.0, gt=0)
    """Timeout of a solve request."""
    bind_timeout_seconds: float = Field(default=60.0, gt=0)
    """Timeout of a bind call for the pods of one gang; pods without a result are sent again."""

    def advertised(self, port: int) -> str:
        """HOST:PORT at which the other replicas reach this one; empty: nowhere."""
        host = f"[{self.advertise_host}]" if ":" in self.advertise_host else self.advertise_host
        return f"{host}:{port}" if host else ""

    @property
    def rules(self) -> Rules:
        """Settings of the core."""
        return Rules(
            starvation_after_seconds=self.starvation_after_seconds,
            repair_timeout_seconds=self.repair_timeout_seconds,
            eviction_timeout_seconds=self.eviction_timeout_seconds,
            reservation_timeout_seconds=self.reservation_timeout_seconds,
            max_reserved_share=self.max_reserved_share,
            max_waiting_time_seconds=self.max_waiting_time_seconds,
            max_held_share=self.max_held_share,
            growth_hold_off_seconds=self.growth_hold_off_seconds,
            max_growth_hold_off_seconds=self.max_growth_hold_off_seconds,
            growth_batch_seconds=self.growth_batch_seconds,
            evictions_per_hour=self.evictions_per_hour,
            trust_declared_priority=self.trust_declared_priority,
        )


def read_password(file: Path | None) -> str | None:
    """Reads the password from the file, without a trailing line break. Raises NoPassword."""
    if file is None:
        return None
    try:
        return file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NoPassword(f"the password of etcd's user cannot be read from {str(file)!r}: {error}") from error


class NoPassword(CannotStart):
    """The password file cannot be read."""
