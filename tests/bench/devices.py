"""Processor time of counting and choosing devices: many nodes with equal devices, and partitions with shared counters.

Run it with `python tests/bench/devices.py` (nodes with `--nodes`).
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.devices.facts import DRIVER, claim, cluster, device, gpus, mig, node, way
from muster.devices.facts import DeviceId, Slice


def timed(what: str, step: Callable[[], object]) -> None:
    started = time.process_time()
    result = step()
    print(f"{what:70} {(time.process_time() - started) * 1000:9.2f} ms  {result}")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--nodes", type=int, default=5000)
    number = arguments.parse_args().nodes
    nodes = [node(f"n{i}") for i in range(number)]
    devices = cluster(*(gpus(each.name, 8) for each in nodes))
    one = [claim(way(1))]

    def count() -> str:
        before = devices.computed
        pods = sum(devices.how_many(each, one, 110).number for each in nodes)
        return f"{pods} pods, {devices.computed - before} shapes computed"

    timed(f"count, {number} nodes with 8 devices, first time", count)
    timed("count again, nothing changed", count)
    devices.allocate_ids(DeviceId("gpu", f"n{i}", "gpu-0") for i in range(0, number, 10))
    timed("count again, a tenth of the nodes changed", count)
    timed("choose a device on each of 512 nodes", lambda: len([devices.allocate(each, one) for each in nodes[:512]]))

    network = [
        Slice(f"s{part}", DRIVER, "network", count=8, all_nodes=True, devices=tuple(map(device, names)))
        for part, names in enumerate([[f"{part}-{number}" for number in range(125)] for part in range(8)])
    ]
    devices = cluster(*(gpus(each.name, 8) for each in nodes), *network)
    timed(f"count, {number} nodes with 8 devices and 1,000 that they share, first time", count)
    timed("count again, nothing changed", count)
    devices.allocate_ids([DeviceId(DRIVER, "network", "0-0")])
    timed("count again, one of those that they share is allocated", count)

    partitions = cluster(*mig("n1", 8))
    here = node("n1")
    mixed = claim(way(1, kind="mig4"), way(2, kind="mig2"), way(3, kind="mig1"))
    timed(
        "8 cards of 15 partitions: pods with one quarter",
        lambda: partitions.how_many(here, [claim(way(kind="mig2"))], 110),
    )
    timed("8 cards of 15 partitions: pods with 1/2 + 2/4 + 3/8", lambda: partitions.how_many(here, [mixed], 110))
    timed(
        "8 cards: choose 4 whole and 8 halves",
        lambda: partitions.allocate(here, [claim(way(4, kind="mig8"), way(8, kind="mig4"))]).outcome,
    )
    timed(
        "8 cards: choose 5 whole and 7 halves (impossible)",
        lambda: partitions.allocate(here, [claim(way(5, kind="mig8"), way(7, kind="mig4"))]).outcome,
    )
    timed(
        "8 cards: 9 halves, 8 quarters, 15 eighths: impossible by count",
        lambda: (
            partitions.allocate(
                here,
                [
                    claim(way(9, kind="mig4"), way(8, kind="mig2"), way(15, kind="mig1"), name="a"),
                    claim(way(10, kind="mig1"), name="b"),
                ],
            ).outcome
        ),
    )


if __name__ == "__main__":
    main()
