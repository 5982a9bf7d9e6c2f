"""Behaviour that every gang scheduler should have. A check answers with what was seen, and whether that is enough."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from bench import load
from bench.binds import BindTimes
from builders.wait import eventually
from compare.cluster import CPUS, ComparedCluster, observed

NODES: Final = 20
_START_SECONDS: Final = 60.0
_STREAM_SECONDS: Final = 120.0
_QUIET_SECONDS: Final = 20.0
_IMPOSSIBLE: Final = 300
_ARRIVALS: Final = 10

JSON = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Result of a check, with what was seen."""

    passed: bool
    seen: str


Check = Callable[[ComparedCluster, BindTimes], Awaitable[Verdict]]


async def creation_order(cluster: ComparedCluster, binds: BindTimes) -> Verdict:
    """A gang fits if its largest pod is placed first. It starts, in whichever order its pods are created."""
    seen = []
    for name, large_first in (("large-first", True), ("large-last", False)):
        gang = cluster.gang(name, NODES)
        small, large = gang.asking(cpu=CPUS // 2), gang.asking(cpu=CPUS)
        # One pod for a whole node; the others share nodes in pairs, or none is left for the large one.
        numbers = range(NODES) if large_first else range(NODES - 1, -1, -1)
        pods = [(large if number == 0 else small).pods(number)[0] for number in numbers]
        others = cluster.gang(f"others-{name}", NODES - 11, CPUS)
        await cluster.create(others)
        await observed(binds, load.pod_names([others]), time.monotonic(), _START_SECONDS)
        await cluster.define(gang)
        await cluster.create_pods(*pods)
        bound, seconds = await observed(binds, load.pod_names([gang]), time.monotonic(), _START_SECONDS)
        seen.append(f"largest {'first' if large_first else 'last'}: {_started(bound, NODES, seconds)}")
        await cluster.delete_pods()
        binds.seen.clear()
        if bound < NODES:
            return Verdict(False, "; ".join(seen))
    return Verdict(True, "; ".join(seen))


async def whole_cluster_under_a_stream(cluster: ComparedCluster, binds: BindTimes) -> Verdict:
    """A gang that needs every node starts, although small gangs keep arriving, twice as many as fit, each of which runs
    for 2 to 4 s.
    """
    stop = asyncio.Event()
    tasks = [asyncio.create_task(_stream(cluster, binds, lane, stop)) for lane in range(NODES)]
    await asyncio.sleep(10)
    gang = cluster.gang("whole", NODES, CPUS)
    await cluster.create(gang)
    bound, seconds = await observed(binds, load.pod_names([gang]), time.monotonic(), _STREAM_SECONDS)
    stop.set()
    await asyncio.gather(*tasks)
    return Verdict(bound == NODES, _started(bound, NODES, seconds))


async def impossible_gang_evicts_nobody(cluster: ComparedCluster, binds: BindTimes) -> Verdict:
    """A gang of high priority that needs one node more than there are leaves the running pods alone."""
    fillers = [cluster.gang(f"low-{number:02}", 1, CPUS, priority="low") for number in range(NODES)]
    await cluster.create(*fillers)
    await observed(binds, load.pod_names(fillers), time.monotonic(), _START_SECONDS)
    await cluster.create(cluster.gang("impossible", NODES + 1, CPUS, priority="high"))
    await asyncio.sleep(_QUIET_SECONDS)
    pods = await cluster.pods()
    left = [pod for pod in pods if pod["metadata"]["name"].startswith("low-")]
    leaving = [pod for pod in left if pod["metadata"].get("deletionTimestamp")]
    evicted = NODES - len(left) + len(leaving)
    return Verdict(not evicted, f"{evicted} of {NODES} pods evicted in {_QUIET_SECONDS:.0f} s")


async def incomplete_gang_says_so(cluster: ComparedCluster, binds: BindTimes) -> Verdict:
    """A gang of 4 of which 3 pods exist says how many are missing, or exist and are needed, where its user looks."""
    gang = cluster.gang("incomplete", 4)
    await cluster.define(gang)
    await cluster.create_pods(*gang.pods(0, 1, 2))
    deadline = time.monotonic() + _QUIET_SECONDS
    messages: list[str] = []
    while time.monotonic() < deadline:
        messages = await cluster.messages()
        if said := next((each for each in messages if _counts_members(each)), ""):
            return Verdict(True, f"“{said}”")
        await asyncio.sleep(1)
    return Verdict(False, f"“{messages[0][:200]}”" if messages else "no condition or event")


async def crash_in_mid_bind(cluster: ComparedCluster, binds: BindTimes) -> Verdict:
    """The scheduler is killed at the first observed bind of a gang of 500, and started again: the gang is whole."""
    gang = cluster.gang("large", 500, 2)
    await cluster.create(gang)
    pods = load.pod_names([gang])
    await eventually(lambda: bool(binds.seen), "a pod is bound", seconds=_START_SECONDS, every_seconds=0.001)
    await cluster.contender.kill()
    before = len(pods & binds.seen.keys())
    killed = time.monotonic()
    await cluster.contender.start()
    bound, seconds = await observed(binds, pods, killed, _START_SECONDS)
    return Verdict(bound == len(pods), f"{before} of 500 bound when it was killed; {_started(bound, 500, seconds)}")


async def impossible_gangs_cost_nothing(cluster: ComparedCluster, binds: BindTimes) -> Verdict:
    """With 300 gangs that can never start a gang of 8 starts as fast as without, within a factor of two."""
    without = await _latency(cluster, binds, "without")
    impossible = [cluster.gang(f"impossible-{number:03}", 8, CPUS + 1) for number in range(_IMPOSSIBLE)]
    await cluster.create(*impossible)
    await asyncio.sleep(_QUIET_SECONDS)
    before = cluster.cpu_seconds()
    await asyncio.sleep(_QUIET_SECONDS)
    share = (cluster.cpu_seconds() - before) / _QUIET_SECONDS
    beside = await _latency(cluster, binds, "beside")
    seen = (
        f"gang of 8: {without * 1000:.0f} ms without, {beside * 1000:.0f} ms with them; {share:.0%} of a core while"
        " nothing happens"
    )
    return Verdict(beside < 2 * without and share < 0.2, seen)


CHECKS: Final[Mapping[str, Check]] = {
    "the order of creation does not matter": creation_order,
    "a gang that needs the whole cluster starts under a stream of small ones": whole_cluster_under_a_stream,
    "a gang that cannot start evicts nobody": impossible_gang_evicts_nobody,
    "an incomplete gang says so": incomplete_gang_says_so,
    "a crash in the middle of a start is survived": crash_in_mid_bind,
    "300 gangs that cannot start cost nothing": impossible_gangs_cost_nothing,
}


async def run_check(check: Check, cluster: ComparedCluster) -> Verdict:
    """Run a check on a cluster of NODES nodes."""
    binds = await cluster.begin()
    await cluster.contender.start()
    try:
        return await check(cluster, binds)
    finally:
        await cluster.contender.stop()
        await cluster.end(binds)


async def _stream(cluster: ComparedCluster, binds: BindTimes, lane: int, stop: asyncio.Event) -> None:
    """Small gangs, one after the other, each for two nodes."""
    number = 0
    while not stop.is_set():
        gang = cluster.gang(f"small-{lane}-{number:04}", 2, CPUS)
        labelled = gang.labelled(small=f"{lane}-{number}")
        await cluster.create(labelled)
        starts = partial(_ended_or_bound, binds, load.pod_names([labelled]), stop)
        await eventually(starts, "the small gang is bound", seconds=2 * _STREAM_SECONDS)
        await asyncio.sleep(2 + (lane * 7 + number * 3) % 20 / 10)
        await cluster.call(
            "DELETE",
            f"/api/v1/namespaces/{cluster.namespace}/pods",
            query={"gracePeriodSeconds": "0", "labelSelector": f"small={lane}-{number}"},
        )
        number += 1


def _ended_or_bound(binds: BindTimes, pods: set[str], stop: asyncio.Event) -> bool:
    return stop.is_set() or pods <= binds.seen.keys()


async def _latency(cluster: ComparedCluster, binds: BindTimes, name: str) -> float:
    """Median of the seconds from the response to the creation of the last pod of a gang of 8 to its last bind."""
    found = []
    for number in range(_ARRIVALS):
        gang = cluster.gang(f"{name}-{number}", 8)
        await cluster.create(gang)
        _, seconds = await observed(binds, load.pod_names([gang]), time.monotonic(), _START_SECONDS)
        found.append(max(seconds, 0.001))
    return statistics.median(found)


def _started(bound: int, size: int, seconds: float) -> str:
    return f"started after {seconds:.1f} s" if bound == size else f"{bound} of {size} bound after {seconds:.0f} s"


def _counts_members(message: str) -> bool:
    """The message tells the numbers of members that exist and are needed, or the number that is missing."""
    words = message.replace(",", " ").replace(":", " ").replace(".", " ").replace("/", " ").split()
    return {"3", "4"} <= set(words) or "1 more" in message
