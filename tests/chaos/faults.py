"""Faults of a running Muster: processes killed, stopped and frozen, outages of etcd and the API server."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

import aiohttp
from grpc import aio

from builders.e2e.cluster import Cluster
from builders.e2e.device_invariants import CLAIMS
from builders.e2e.devices import API
from builders.e2e.faults import BINDS, EVERYTHING, Requests
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.localcluster.stack import SERVICES, Stack
from muster.rpc.channel import open_channel

Inject = Callable[[Cluster, float], Awaitable[None]]
"""Injects the fault, keeps it up for so many seconds, and removes it."""
CLAIM_CREATIONS = Requests("POST", "/resourceclaims")
CLAIM_CHANGES = Requests("PUT|PATCH", "/resourceclaims/[^/]+(/status)?")
_SLICES = f"/apis/{API}/resourceslices"


@dataclass(frozen=True)
class Fault:
    """One kind of fault, injected for `shortest_seconds` to `longest_seconds`."""

    name: str
    inject: Inject
    longest_seconds: float = 2.0
    shortest_seconds: float = 0.0
    of_api_server: bool = False


def all_faults(cluster: Cluster) -> list[Fault]:
    """Lists every kind of fault once."""
    replicas = [name for service in SERVICES for name in cluster.stack.replicas_of(service)]
    faults = [Fault(f"kill {name}", kill(name)) for name in replicas]
    faults += [Fault(f"stop {name}", kill(name, graceful=True)) for name in replicas]
    faults += [Fault(f"freeze {name}", _freeze(name), 5.0, 0.5) for name in replicas]
    faults += [Fault(f"kill all of {service}", kill(*cluster.stack.replicas_of(service))) for service in SERVICES]
    faults += [
        Fault("kill the leading coordinator", _kill_leader),
        Fault("kill every service", kill(*replicas)),
        Fault("kill etcd's leader", _kill_etcd_leader, 4.0),
        Fault("kill a member of etcd", kill(list(cluster.stack.etcd_addresses)[-1]), 4.0),
        Fault("kill most of etcd", kill(*list(cluster.stack.etcd_addresses)[1:]), 4.0),
        Fault("kill all of etcd", kill(*cluster.stack.etcd_addresses), 4.0),
        Fault("API server unavailable", _stop_api_server, 4.0, of_api_server=True),
        Fault("API server answers 429", _throttle_requests, 4.0, 1.0, of_api_server=True),
        Fault("API server answers 500 to binds", _fail_binds, 2.0, 0.5, of_api_server=True),
        Fault("lose answers to binds", _lose_bind_answers, 2.0, 0.5, of_api_server=True),
        Fault("API server answers 500 to writes of claims", _fail_claims, 2.0, 0.5, of_api_server=True),
        Fault("lose answers to writes of claims", _lose_claim_answers, 2.0, 0.5, of_api_server=True),
        Fault("delete claims that are being allocated", _delete_claims, 2.0, 0.5, of_api_server=True),
        Fault("withdraw devices", _withdraw_devices, 4.0, 0.5, of_api_server=True),
        Fault("break watches", _break_watches),
    ]
    return faults


@asynccontextmanager
async def stopped(cluster: Cluster, *names: str, graceful: bool = False) -> AsyncIterator[None]:
    """Stops these processes in the block and starts them afterwards, without waiting until they are ready."""
    children = [cluster.stack.children[name] for name in names]
    await asyncio.gather(*(child.stop() if graceful else child.kill() for child in children))
    try:
        yield
    finally:
        await asyncio.gather(*(child.start() for child in children if not child.running))


def kill(*names: str, graceful: bool = False) -> Inject:
    """Sends SIGKILL, or SIGTERM if `graceful`, to all of them at once."""

    async def inject(cluster: Cluster, seconds: float) -> None:
        async with stopped(cluster, *names, graceful=graceful):
            await asyncio.sleep(seconds)

    return inject


def paused(cluster: Cluster, names: Iterable[str]) -> AsyncExitStack:
    """Freezes these processes in the block (SIGSTOP)."""
    stack = AsyncExitStack()
    for name in names:
        stack.enter_context(cluster.frozen(name))
    return stack


def _freeze(name: str) -> Inject:
    async def inject(cluster: Cluster, seconds: float) -> None:
        async with paused(cluster, [name]):
            await asyncio.sleep(seconds)

    return inject


async def coordinator_leader(stack: Stack) -> str:
    """Returns the name of the leading coordinator; the first if none leads."""
    for name in stack.replicas_of("coordinator"):
        if await leads(stack, name):
            return name
    return stack.replicas_of("coordinator")[0]


async def leads(stack: Stack, name: str) -> bool:
    """Whether the coordinator answers List, as only the leader does."""
    async with open_channel(stack.addresses[name]) as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        try:
            await stub.List(coordinator_pb2.ListRequest(namespace="nobody-s"), timeout=1.0)
        except aio.AioRpcError:
            return False
    return True


async def etcd_leader(cluster: Cluster) -> str:
    """Returns the name of etcd's leader; the first member if there is none."""
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


async def _kill_leader(cluster: Cluster, seconds: float) -> None:
    await kill(await coordinator_leader(cluster.stack))(cluster, seconds)


async def _kill_etcd_leader(cluster: Cluster, seconds: float) -> None:
    await kill(await etcd_leader(cluster))(cluster, seconds)


async def _stop_api_server(cluster: Cluster, seconds: float) -> None:
    async with cluster.faults.away():
        await asyncio.sleep(seconds)


async def _throttle_requests(cluster: Cluster, seconds: float) -> None:
    with cluster.faults.refuse(EVERYTHING, 429, headers={"Retry-After": "1"}):
        await asyncio.sleep(seconds)


async def _fail_binds(cluster: Cluster, seconds: float) -> None:
    with cluster.faults.refuse(BINDS, 500):
        await asyncio.sleep(seconds)


async def _lose_bind_answers(cluster: Cluster, seconds: float) -> None:
    with cluster.faults.cut(BINDS, carried_out=True):
        await asyncio.sleep(seconds)


async def _fail_claims(cluster: Cluster, seconds: float) -> None:
    with cluster.faults.refuse(CLAIM_CREATIONS, 500), cluster.faults.refuse(CLAIM_CHANGES, 500):
        await asyncio.sleep(seconds)


async def _lose_claim_answers(cluster: Cluster, seconds: float) -> None:
    with ExitStack() as stack:
        for requests in (CLAIM_CREATIONS, CLAIM_CHANGES):
            stack.enter_context(cluster.faults.cut(requests, carried_out=True))
        await asyncio.sleep(seconds)


async def _delete_claims(cluster: Cluster, seconds: float) -> None:
    """Delete claims after the permit and before their allocation, or after it; not those that nobody creates anew."""
    with cluster.faults.hold(CLAIM_CHANGES) as held:
        await asyncio.sleep(seconds)
        generated = {
            f"{CLAIMS.removesuffix('resourceclaims')}namespaces/{each['metadata']['namespace']}"
            f"/resourceclaims/{each['metadata']['name']}"
            for each in (await cluster.call("GET", CLAIMS))["items"]
            if each["metadata"].get("ownerReferences")
        }
        for path in {each.removesuffix("/status") for each in held.paths} & generated:
            await cluster.try_call("DELETE", path)


async def _withdraw_devices(cluster: Cluster, seconds: float) -> None:
    """Delete the slices of every second node, as a driver that is removed, and publish them in a new generation."""
    found = (await cluster.call("GET", _SLICES))["items"][::2]
    for each in found:
        await cluster.call("DELETE", f"{_SLICES}/{each['metadata']['name']}")
    try:
        await asyncio.sleep(seconds)
    finally:
        for each in found:
            pool = {**each["spec"]["pool"], "generation": each["spec"]["pool"]["generation"] + 1}
            metadata = {key: each["metadata"][key] for key in ("name", "ownerReferences")}
            body = {"apiVersion": API, "kind": "ResourceSlice", "metadata": metadata}
            await cluster.apply({**body, "spec": {**each["spec"], "pool": pool}})


async def _break_watches(cluster: Cluster, seconds: float) -> None:
    cluster.faults.break_watches()
    await asyncio.sleep(seconds)
    cluster.faults.break_watches()


def resume_all(cluster: Cluster) -> None:
    """Resumes all frozen processes (SIGCONT)."""
    for child in cluster.stack.children.values():
        child.send(signal.SIGCONT)


def shuffled(cluster: Cluster, random: Random) -> Iterable[Fault]:
    """Yields all faults in random order, then all again, forever."""
    while True:
        faults = all_faults(cluster)
        random.shuffle(faults)
        yield from faults
