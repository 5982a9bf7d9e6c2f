"""What is done to a running Muster: processes killed, stopped and frozen, etcd and the API server taken away."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

import aiohttp
from grpc import aio

from builders.e2e.cluster import Cluster
from builders.e2e.faults import BINDS, EVERYTHING
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.localcluster.stack import SERVICES
from muster.rpc.channel import open_channel

Strike = Callable[[Cluster, float], Awaitable[None]]
"""Does it, for so many seconds, and undoes it."""


@dataclass(frozen=True)
class Blow:
    """One kind of trouble; `longest_seconds` is how long it may go on."""

    name: str
    strike: Strike
    longest_seconds: float = 2.0
    shortest_seconds: float = 0.0
    of_api_server: bool = False


def deck(cluster: Cluster) -> list[Blow]:
    """All there are, each once."""
    replicas = [name for service in SERVICES for name in cluster.stack.replicas_of(service)]
    blows = [Blow(f"kill {name}", killing(name)) for name in replicas]
    blows += [Blow(f"stop {name}", killing(name, in_order=True)) for name in replicas]
    blows += [Blow(f"freeze {name}", _freezing(name), 5.0, 0.5) for name in replicas]
    blows += [Blow(f"kill all of {service}", killing(*cluster.stack.replicas_of(service))) for service in SERVICES]
    blows += [
        Blow("kill the coordinator that leads", _killing_leader),
        Blow("kill every service", killing(*replicas)),
        Blow("kill etcd's leader", _killing_etcd_leader, 4.0),
        Blow("kill a member of etcd", killing(list(cluster.stack.etcd_addresses)[-1]), 4.0),
        Blow("kill most of etcd", killing(*list(cluster.stack.etcd_addresses)[1:]), 4.0),
        Blow("kill all of etcd", killing(*cluster.stack.etcd_addresses), 4.0),
        Blow("the API server is down", _api_server_away, 4.0, of_api_server=True),
        Blow("the API server says 429", _too_many_requests, 4.0, 1.0, of_api_server=True),
        Blow("the API server says 500 to binds", _failing_binds, 2.0, 0.5, of_api_server=True),
        Blow("answers to binds are lost", _lost_answers, 2.0, 0.5, of_api_server=True),
        Blow("watches break", _breaking_watches),
    ]
    return blows


@asynccontextmanager
async def dead(cluster: Cluster, *names: str, in_order: bool = False) -> AsyncIterator[None]:
    """In the block these processes do not run; afterwards they are started, and may take their time."""
    children = [cluster.stack.children[name] for name in names]
    await asyncio.gather(*(child.stop() if in_order else child.kill() for child in children))
    try:
        yield
    finally:
        await asyncio.gather(*(child.start() for child in children if not child.running))


def killing(*names: str, in_order: bool = False) -> Strike:
    """SIGKILL, or SIGTERM if `in_order`, to all of them at once."""

    async def strike(cluster: Cluster, seconds: float) -> None:
        async with dead(cluster, *names, in_order=in_order):
            await asyncio.sleep(seconds)

    return strike


def frozen(cluster: Cluster, names: Iterable[str]) -> AsyncExitStack:
    """In the block these processes stand still."""
    stack = AsyncExitStack()
    for name in names:
        stack.enter_context(cluster.frozen(name))
    return stack


def _freezing(name: str) -> Strike:
    async def strike(cluster: Cluster, seconds: float) -> None:
        async with frozen(cluster, [name]):
            await asyncio.sleep(seconds)

    return strike


async def leader_of_coordinators(cluster: Cluster) -> str:
    """Name of the process that leads; the first if none says so."""
    for name in cluster.stack.replicas_of("coordinator"):
        if await leads(cluster, name):
            return name
    return cluster.stack.replicas_of("coordinator")[0]


async def leads(cluster: Cluster, name: str) -> bool:
    """It answers as only the leader does."""
    async with open_channel(cluster.stack.addresses[name]) as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        try:
            await stub.List(coordinator_pb2.ListRequest(namespace="nobody-s"), timeout=1.0)
        except aio.AioRpcError:
            return False
    return True


async def leader_of_etcd(cluster: Cluster) -> str:
    """Name of the member that leads; the first if none says so."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1.0)) as session:
        for name, address in cluster.stack.etcd_addresses.items():
            try:
                async with session.post(f"http://{address}/v3/maintenance/status", json={}) as response:
                    status = await response.json()
            except (aiohttp.ClientError, TimeoutError):
                continue
            if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                return name
    return next(iter(cluster.stack.etcd_addresses))


async def _killing_leader(cluster: Cluster, seconds: float) -> None:
    await killing(await leader_of_coordinators(cluster))(cluster, seconds)


async def _killing_etcd_leader(cluster: Cluster, seconds: float) -> None:
    await killing(await leader_of_etcd(cluster))(cluster, seconds)


async def _api_server_away(cluster: Cluster, seconds: float) -> None:
    async with cluster.faults.away():
        await asyncio.sleep(seconds)


async def _too_many_requests(cluster: Cluster, seconds: float) -> None:
    with cluster.faults.refuse(EVERYTHING, 429, headers={"Retry-After": "1"}):
        await asyncio.sleep(seconds)


async def _failing_binds(cluster: Cluster, seconds: float) -> None:
    with cluster.faults.refuse(BINDS, 500):
        await asyncio.sleep(seconds)


async def _lost_answers(cluster: Cluster, seconds: float) -> None:
    with cluster.faults.cut(BINDS, carried_out=True):
        await asyncio.sleep(seconds)


async def _breaking_watches(cluster: Cluster, seconds: float) -> None:
    cluster.faults.break_watches()
    await asyncio.sleep(seconds)
    cluster.faults.break_watches()


def thaw(cluster: Cluster) -> None:
    """Whoever stands still goes on."""
    for child in cluster.stack.children.values():
        child.send(signal.SIGCONT)


def shuffled(cluster: Cluster, random: Random) -> Iterable[Blow]:
    """For ever: all kinds in some order, then all again."""
    while True:
        blows = deck(cluster)
        random.shuffle(blows)
        yield from blows
