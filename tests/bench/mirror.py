"""A real gRPC stream into placement's mirror, as JSON: time to synchronise, memory, pod changes per second.

python tests/bench/mirror.py [--nodes 100000] [--pods 1000000] [--changes 500000] [--batches 1000 100 10]

Another process acts as cluster-state with messages encoded in advance: a snapshot, a second one while the first still
answers, then deltas: pods that are created, bound, running, finished, deleted. `longest_pause_ms` is the longest hold
of the event loop.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import numpy as np
import psutil
import uvloop

from muster.placement.state.mirror import Mirror
from muster.rpc.channel import open_channel
from muster.rpc.subscription import subscribe
from muster.telemetry.logs import configure_logs

_PATIENCE_SECONDS = 600.0


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    """Start the other process, subscribe, measure."""
    recorded = Path(__file__).with_name("recorded.py")
    sizes = (options.nodes, options.pods, options.changes, *options.batches)
    feeder = await asyncio.create_subprocess_exec(
        sys.executable, str(recorded), *map(str, sizes), stdin=PIPE, stdout=PIPE
    )
    try:
        return await _measure(feeder, options)
    finally:
        feeder.kill()
        await feeder.wait()


async def _measure(feeder: Process, options: argparse.Namespace) -> dict[str, Any]:
    mirror = Mirror()
    async with open_channel(f"127.0.0.1:{await _answer(feeder)}") as channel:
        before, watch = _resident_mib(), Stopwatch()
        following = asyncio.create_task(mirror.follow(lambda: subscribe(channel, "bench"), _ignore))
        first = await mirror.reached({"nodes": 1}, _PATIENCE_SECONDS)
        synced = {**watch.read(), "resident_mib": _resident_mib()}
        again = {**await _send(feeder, mirror), "peak_mib": _peak_mib()}
        cluster = mirror.cluster
        assert cluster is not None and cluster is not first, "there was no second snapshot"
        assert (len(cluster.nodes), cluster.capacity.seats) == (options.nodes, options.pods)
        assert np.array_equal(first.capacity.used, cluster.capacity.used)
        changes = []
        for size in options.batches:
            cost = await _send(feeder, mirror)
            count = options.changes // size * size
            changes.append({"per_batch": size, "pods_per_second": round(count / cost["seconds"]), **cost})
        assert cluster is mirror.cluster, "the stream broke"
        assert np.array_equal(first.capacity.used, cluster.capacity.used), "something that came and went has stayed"
        following.cancel()
    sizes = {"nodes": options.nodes, "pods": options.pods}
    return {**sizes, "resident_mib_before": before, "snapshot": synced, "second_snapshot": again, "changes": changes}


async def _send(feeder: Process, mirror: Mirror) -> dict[str, float]:
    """Request the next part; returns its cost."""
    assert feeder.stdin is not None
    watch = Stopwatch()
    feeder.stdin.write(b"\n")
    await mirror.reached({"pods": await _answer(feeder)}, _PATIENCE_SECONDS)
    return watch.read()


class Stopwatch:
    """Time, CPU and the longest hold of the event loop since creation."""

    _TICK_SECONDS = 0.002

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began, self._began_cpu = time.monotonic(), time.process_time()
        self._ticked, self._longest = time.monotonic(), 0.0
        self._timer = self._loop.call_later(self._TICK_SECONDS, self._tick)

    def read(self) -> dict[str, float]:
        """Stop, and return the measurements."""
        self._timer.cancel()
        return {
            "seconds": round(time.monotonic() - self._began, 2),
            "cpu_seconds": round(time.process_time() - self._began_cpu, 2),
            "longest_pause_ms": round(self._longest * 1000, 1),
        }

    def _tick(self) -> None:
        now = time.monotonic()
        self._longest, self._ticked = max(self._longest, now - self._ticked - self._TICK_SECONDS), now
        self._timer = self._loop.call_later(self._TICK_SECONDS, self._tick)


async def _answer(feeder: Process) -> int:
    assert feeder.stdout is not None
    return int(await feeder.stdout.readline())


def _resident_mib() -> int:
    return round(psutil.Process().memory_info().rss / 2**20)


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _ignore(current: bool) -> None:
    pass


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--pods", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=500_000, help="changes of pods, for each size of batches")
    parser.add_argument("--batches", type=int, nargs="*", default=[1000, 100, 10], help="changes per batch")
    options = parser.parse_args()
    configure_logs("mirror", "warning")
    print(json.dumps(uvloop.run(bench(options)), indent=2))


if __name__ == "__main__":
    main()
