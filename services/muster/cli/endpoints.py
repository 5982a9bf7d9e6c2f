"""Where the parts of a local Muster listen, kept in its state directory so that other commands find them."""

from pathlib import Path
from typing import Any

import msgspec

STATE_DIRECTORY = Path(".muster")
"""Default state directory, below the working directory."""

PUBLISHED_NAMESPACE, PUBLISHED_NAME = "kube-public", "muster"
"""The ConfigMap that says to those who have only a kubeconfig where Muster's parts listen."""

_FILE = "endpoints.json"


class Endpoints(msgspec.Struct, frozen=True):
    """Addresses are "host:port"; paths are absolute."""

    pid: int
    """Of the process that runs it all."""
    kubeconfig: str
    etcd: str
    cluster_state: str
    placement: str
    binding: str
    coordinator: str
    lifecycle: str = ""
    traces: str = ""
    """File that spans are kept in; empty: none."""
    metrics: dict[str, str] = {}
    """Where services tell their metrics, at /metrics, by the names of their processes."""

    def write(self, directory: Path) -> None:
        """Put it into a state directory, whole or not at all."""
        partial = directory / f".{_FILE}.partial"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        partial.replace(directory / _FILE)

    def published(self) -> dict[str, Any]:
        """The ConfigMap, with what people ask of."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PUBLISHED_NAME, "namespace": PUBLISHED_NAMESPACE},
            "data": {"coordinator": self.coordinator, "cluster-state": self.cluster_state, "traces": self.traces},
        }


def read_endpoints(directory: Path) -> Endpoints | None:
    """What the local Muster of that state directory wrote; None if there is none."""
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=Endpoints)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def find_endpoints(start: Path) -> Endpoints | None:
    """Like `read_endpoints` for the default state directory of `start` or the nearest directory above that has one."""
    for directory in (start, *start.parents):
        if (found := read_endpoints(directory / STATE_DIRECTORY)) is not None:
            return found
    return None


def forget_endpoints(directory: Path) -> None:
    """Say that nothing runs there any more."""
    (directory / _FILE).unlink(missing_ok=True)
