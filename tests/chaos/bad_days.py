"""Troubles that last: a slow or throttling API server, nodes that flap, a crowded namespace that is deleted at once,
watches that lag behind each other, wrong clocks, full disks of etcd.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
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
_MOST_LAG_SECONDS: Final = 3.0
_FAKETIME_LIBRARIES: Final = [
    Path(f"/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1") for machine in ("x86_64", "aarch64")
]
_DISK_MIB: Final = 320
"""etcd reserves 64 MiB for each of two files of its log."""
_FILLER: Final = "filler"
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


@asynccontextmanager
async def lagging_watches(cluster: Cluster, number: int) -> AsyncIterator[None]:
    """Events of different kinds arrive in another order than they happened: those of a kind up to three seconds late,
    by an amount that changes every second.
    """
    random = Random(number)
    lags: dict[tuple[str, int], float] = {}

    def lag(path: str) -> float:
        return lags.setdefault((path, int(time.monotonic())), random.uniform(0.0, _MOST_LAG_SECONDS))

    with cluster.faults.lagging(lag):
        yield


class Impossible(RuntimeError):
    """This machine lacks what a trouble needs; the message says what."""


class Clock:
    """The wall clock of the services, by libfaketime: monotonic time goes on as it is, as when ntpd sets a clock."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._set(0)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of processes that have this clock. Raises Impossible without libfaketime."""
        library = next((path for path in _FAKETIME_LIBRARIES if path.exists()), None)
        if library is None:
            raise Impossible("libfaketime is not there: apt-get install faketime")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
        }

    @asynccontextmanager
    async def jumps(self, hours: int, _cluster: Cluster, _number: int) -> AsyncIterator[None]:
        """The clock is so many hours ahead in the block; it jumps there and back."""
        self._set(hours)
        try:
            yield
        finally:
            self._set(0)

    def _set(self, hours: int) -> None:
        # Replaced at once: half a file would be no time at all.
        new = self._file.with_suffix(".new")
        new.write_text(f"{hours * 3600:+d}\n")
        new.rename(self._file)


class Disks:
    """Small disks for the members of etcd, which can be filled. Needs root."""

    def __init__(self, directory: Path, members: Iterable[str]) -> None:
        self._disks = [directory / member for member in members]
        self._mounted: list[Path] = []

    async def mount(self) -> None:
        """Raises Impossible."""
        for disk in self._disks:
            disk.mkdir(parents=True)
            if await _ran("mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "muster-outages", str(disk)):
                raise Impossible(f"{disk} cannot be mounted: full disks need root")
            self._mounted.append(disk)

    async def unmount(self) -> None:
        for disk in self._mounted:
            await _ran("umount", "--lazy", str(disk))

    @asynccontextmanager
    async def full(self, cluster: Cluster, _number: int) -> AsyncIterator[None]:
        """No member can write more than it has space for already. Members that ended meanwhile are started again."""
        for disk in self._disks:
            _fill(disk / _FILLER)
        try:
            yield
        finally:
            for disk in self._disks:
                (disk / _FILLER).unlink()
            await cluster.stack.start(cluster.stack.etcd_addresses)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while filler.write(bytes(size)):
                    pass


async def _ran(*command: str) -> int:
    """Exit code of a command."""
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


def _in_parts(names: list[str]) -> list[list[str]]:
    return [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
