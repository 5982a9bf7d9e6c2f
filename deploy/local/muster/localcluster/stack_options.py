"""Options of a stack: the processes to start, their parameters and their directory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class StackOptions:
    """Options of one stack."""

    directory: Path
    nodes: int = 20
    racks: int = 4
    cpu: str = "8"
    memory: str = "32Gi"
    pods_per_node: int = 110
    gpus_per_node: int = 0
    devices: tuple[str, ...] = ()
    """Devices of dynamic resource allocation, as in the kubelets' option --devices: "gpu:8@0-3"."""
    kubeconfig: Path | None = None
    """API server to use; None: the embedded one."""
    services_server: str = ""
    """URL of the API server for the services; empty: its own. Tests put a fault-injecting relay there, which identifies
    services by the tokens of `Stack.identities`."""
    kubelets: bool = True
    """Start simulated kubelets."""
    otlp_endpoint: str = ""
    """URL of the span collector; empty: no export."""
    log_level: str = "info"
    durable: bool = True
    """etcd calls fsync; only tests do without."""
    placement: str = "placement"
    """Implementation of placement, by its name in `muster run`."""
    own_placement: str = ""
    """Address of a placement that the user runs, which is used instead; it watches `cluster_state_listen`."""
    cluster_state_listen: str = ""
    """Address of cluster-state; empty: a free port."""
    service_environment: Mapping[str, str] = field(default_factory=dict)
    """Additional environment of the services, e.g. shorter timeouts for tests."""
    kubelet_arguments: tuple[str, ...] = ()
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Service -> number of replicas; default 1."""
    etcd_members: int = 1
    metrics: bool = True
    """Services expose metrics."""
    secured: bool = False
    """Mutual TLS between all processes, including etcd members, and users in etcd. Needs openssl."""
    console: bool = False
    """Start the console."""
    forecast: bool = False
    """Start forecast."""
    quota: bool = False
    """The API server, which must be on this machine, calls lifecycle's quota webhook for new pods."""
    device_webhook: bool = False
    """The API server calls lifecycle's device webhook for allocations of devices."""
