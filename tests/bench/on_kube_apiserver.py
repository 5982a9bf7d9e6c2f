"""The cluster of a part of the bench on a kube-apiserver of its own."""

import argparse
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.bench_cluster import BenchCluster
from interop.control_plane import running_control_plane

_CONTROLLERS: Final = "*,-node-lifecycle-controller,-garbage-collector-controller"


@asynccontextmanager
async def on_kube_apiserver(
    options: argparse.Namespace, replicas: Mapping[str, int] = MappingProxyType({})
) -> AsyncIterator[BenchCluster]:
    """A cluster with etcd (fsync), kube-apiserver, whose costs count, and kube-controller-manager. Raises NotBuilt."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        plane_directory = Path(directory) / "control-plane"
        async with running_control_plane(plane_directory, durable=True, controllers=_CONTROLLERS) as plane:
            pids = [f"kube-apiserver={plane.api_server.pid}"]
            here = argparse.Namespace(**{**vars(options), "kubeconfig": plane.kubeconfig, "watch_pid": pids})
            async with BenchCluster(here, clear=False, replicas=replicas) as cluster:
                yield cluster
