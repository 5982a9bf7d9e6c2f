"""Addresses of a local cluster: the file in its state directory, and the ConfigMap kube-public/muster."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

STATE_DIRECTORY = Path(".muster")
"""Default state directory, below the working directory."""

PUBLISHED_NAMESPACE, PUBLISHED_NAME = "kube-public", "muster"
"""ConfigMap with the addresses, for users who have only a kubeconfig."""

_FILE = "endpoints.json"


class Addresses(NamedTuple):
    """Where the scheduler is: what `muster whatif` and `muster snapshot` read."""

    cluster_state: str
    coordinator: str


class Endpoints(msgspec.Struct, frozen=True):
    """Addresses are "host:port"; paths are absolute."""

    pid: int
    """Process id of `muster up`."""
    kubeconfig: str
    etcd: str
    cluster_state: str
    placement: str
    binding: str
    coordinator: str
    lifecycle: str = ""
    console: str = ""
    """URL; empty: there is none."""
    forecast: str = ""
    """Empty: there is none."""
    traces: str = ""
    """Trace file; empty: none."""
    metrics: dict[str, str] = {}
    """Process name -> address that serves /metrics."""

    def write(self, directory: Path) -> None:
        """Write the file atomically."""
        partial = directory / f".{_FILE}.partial"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        partial.replace(directory / _FILE)

    def config_map(self) -> dict[str, Any]:
        """The ConfigMap with the addresses that users call."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PUBLISHED_NAME, "namespace": PUBLISHED_NAMESPACE},
            "data": {"coordinator": self.coordinator, "cluster-state": self.cluster_state, "traces": self.traces},
        }


def read_endpoints(directory: Path) -> Endpoints | None:
    """The file of that state directory; None if no local cluster runs with it."""
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=Endpoints)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def local_endpoints(state_directory: Path | None) -> Endpoints | None:
    """Endpoints of the given state directory, else of the default one here or in the nearest directory above."""
    if state_directory is not None:
        return read_endpoints(state_directory)
    here = Path.cwd()
    for directory in (here, *here.parents):
        if (found := read_endpoints(directory / STATE_DIRECTORY)) is not None:
            return found
    return None


def remove_endpoints(directory: Path) -> None:
    """Delete the file: the local cluster has stopped."""
    (directory / _FILE).unlink(missing_ok=True)
