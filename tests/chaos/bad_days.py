"""Troubles that last: a slow or throttling API server, nodes that flap, a crowded namespace that is deleted at once."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from bench.load import delete_pods
from builders.e2e.cluster import Cluster
from builders.e2e.faults import EVERYTHING
from builders.gangs.manifests import gang
from builders.kube.nodes import Machine, make_nodes, remove_nodes, taint_nodes
from builders.wait import latency

_SLOW_SECONDS: Final = 5.0
_FLAPPING: Final = [f"flapping-{number:04}" for number in range(1000)]
_ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}
_FLAP_SECONDS: Final = 1.0
_AT_ONCE: Final = 50
_CROWD, _CROWD_PODS, _CROWD_SIZE = "crowd", 20_000, 10


@asynccontextmanager
async def throttled(cluster: Cluster, _number: int) -> AsyncIterator[None]:
    """Every request is answered with 429."""
    with cluster.faults.refuse(EVERYTHING, 429, headers={"Retry-After": "1"}):
        yield


@asynccontextmanager
async def slow(cluster: Cluster, _number: int) -> AsyncIterator[None]:
    """Every request is carried out five seconds late."""
    with cluster.faults.delay(EVERYTHING, _SLOW_SECONDS):
        yield


@asynccontextmanager
async def flapping_nodes(cluster: Cluster, _number: int) -> AsyncIterator[None]:
    """1,000 nodes, on which nothing runs, become not ready and ready again all the time."""
    for some in _in_parts(_FLAPPING):
        await make_nodes(cluster.session, *(Machine(name, _ROOM) for name in some))
    flapping = asyncio.create_task(_flap(cluster))
    try:
        yield
        assert not flapping.done(), flapping.exception()
    finally:
        flapping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await flapping
        await remove_nodes(cluster.session, *_FLAPPING)


async def _flap(cluster: Cluster) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    for taints in itertools.cycle(([taint], None)):
        for some in _in_parts(_FLAPPING):
            await taint_nodes(cluster.session, *some, taints=taints)
        await latency(_FLAP_SECONDS)


@asynccontextmanager
async def deleted_crowd(cluster: Cluster, number: int) -> AsyncIterator[None]:
    """20,000 pods wait in a namespace, in gangs for which there is no capacity; all are deleted at once."""
    namespace = f"{_CROWD}-{number}"
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for first in range(0, _CROWD_PODS, _CROWD_SIZE * _AT_ONCE):
        names = [f"c{first + each * _CROWD_SIZE:05}" for each in range(_AT_ONCE)]
        gangs = [gang(name).of(_CROWD_SIZE).asking(cpu=1000).in_namespace(namespace) for name in names]
        await cluster.apply(*(pod for each in gangs for pod in each.pods()))
    await delete_pods(cluster.session, namespace)
    yield


def _in_parts(names: list[str]) -> list[list[str]]:
    return [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
