"""Speed and memory of the console with a large cluster.

python tests/bench/console.py --nodes 5000 --pods 100000 --gangs 5000
"""

import argparse
import asyncio
import contextlib
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import aiohttp
import psutil

from builders.console.services import RACKS, SMALL, Reader, Services, gang, node, pod, services
from builders.wait import eventually
from muster.clusterstate.v1 import clusterstate_pb2
from muster.gangs.facts import Batch
from muster.localcluster.ports import free_port
from muster.rpc.watch_codec import batch_step, snapshot_begin_step, synced_step

_PODS_PER_MESSAGE = 1000
_MEBIBYTE = 1 << 20


def snapshot(nodes: int, pods: int, gangs: int) -> list[clusterstate_pb2.WatchResponse]:
    """A snapshot as cluster-state sends it, in parts."""
    placed = [
        pod(f"p{number}", f"koordinator/ml/g{(number + number // nodes) % gangs}", on=f"node-{number % nodes:04}")
        for number in range(pods)
    ]
    batches = [Batch(pod_classes=(SMALL,), nodes=tuple(node(number, nodes // 40) for number in range(nodes)))]
    batches += [
        Batch(pods=tuple(placed[start : start + _PODS_PER_MESSAGE])) for start in range(0, pods, _PODS_PER_MESSAGE)
    ]
    return [snapshot_begin_step("subscribed"), *map(batch_step, [*batches, Batch(trees=(RACKS,))]), synced_step({})]


async def measure(there: Services, nodes: int) -> dict[str, float]:
    listen, metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    flags = ["--listen", listen, "--metrics-listen", metrics, "--cluster-state", there.cluster_state_address]
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", "run", "console", "--coordinator", there.coordinator_address, *flags),
        stderr=asyncio.subprocess.DEVNULL,
    )
    figures: dict[str, float] = {}
    try:
        async with aiohttp.ClientSession(read_bufsize=1 << 26) as session:

            async def ready() -> bool:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://{listen}/ready") as answer:
                        return answer.status == 200
                return False

            await eventually(ready, "the console is ready", seconds=120)
            figures["seconds until ready"] = time.monotonic() - began
            async with session.get(f"http://{listen}/api/events?feeds=nodes,trees") as response:
                page = Reader(response)
                names: set[str] = set()
                while len(names) < nodes:
                    names |= {row["name"] for row in (await page.until("nodes"))["rows"]}
                figures["seconds until all rows were rendered and read"] = time.monotonic() - began
                changed = time.monotonic()
                more = tuple(
                    pod(f"new-{number}", "koordinator/ml/new", on=f"node-{number:04}") for number in range(500)
                )
                there.cluster.send(batch_step(Batch(pods=more)))
                names = set()
                while len(names) < len(more):
                    names |= {row["name"] for row in (await page.until("nodes"))["rows"]}
                figures["seconds until 500 changed nodes were read"] = time.monotonic() - changed
            for name in ("nodes,trees", "gangs"):
                before = time.monotonic()
                async with session.get(f"http://{listen}/api/events?feeds={name}") as response:
                    size, ended = await _first_rows(response)
                figures[f"MiB of the first rows, {name}"] = size / _MEBIBYTE
                figures[f"seconds for a page to read them, {name}"] = ended - before
            async with session.get(f"http://{metrics}/metrics") as answer:
                text = await answer.text()
            hold = re.search(r"^muster_event_loop_hold_max_seconds ([0-9.e-]+)$", text, re.MULTILINE)
            figures["longest hold of the event loop, seconds"] = float(hold[1]) if hold else -1
            figures["resident memory, MiB"] = psutil.Process(process.pid).memory_info().rss / _MEBIBYTE
    finally:
        process.terminate()
        await process.wait()
    return figures


async def _first_rows(response: aiohttp.ClientResponse) -> tuple[int, float]:
    """Bytes until no more rows come at once, and when the last of them came."""
    size, ended = 0, 0.0
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.2 if size else 60):
                line = await response.content.readline()
            if line.startswith(b'data: {"reset"'):
                size, ended = size + len(line), time.monotonic()
    return size, ended


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("nodes", 5000), ("pods", 100_000), ("gangs", 5000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    async with services() as there:
        there.cluster.opening = snapshot(options.nodes, options.pods, options.gangs)
        reason = "gang ml/x cannot start: 3 of 8 members fit; 0/5000 nodes are available: 5000 Insufficient cpu"
        there.coordinator.put(*(gang(f"koordinator/ml/g{number}", reason=reason) for number in range(options.gangs)))
        for name, figure in (await measure(there, options.nodes)).items():
            print(f"{name:50} {figure:10.3f}")


if __name__ == "__main__":
    asyncio.run(main())
