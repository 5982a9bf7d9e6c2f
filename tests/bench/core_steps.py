"""Longest step of the coordinator's core, and its memory, while thousands of distinct pod classes come, run and go.

python tests/bench/core_steps.py [--nodes 5000] [--pods 20000] [--classes 5000] [--rounds 3] [--profile]

The scenario: gangs of 4, each of one of the classes, most of which select one node; one gang in four fits nowhere. The
core runs alone: answers of placement, writes and binds take effect at once.
"""

import argparse
import cProfile
import gc
import json
import pstats
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from msgspec.structs import replace

from muster.coordinator.core import effects, events
from muster.coordinator.core.machine import Machine
from muster.gangs.facts import Batch, GangFacts, NodeFacts, PodClass, PodFacts, PodPhase
from muster.gangs.solve import Assignment, Explanation, SolveGroup, SolveOutcome, SolveResult

GANG_SIZE: Final = 4
CHUNK: Final = 1000
"""Objects in one batch of the stream."""
HOST: Final = "kubernetes.io/hostname"
_STATUS: Final = Path("/proc/self/status")


@dataclass(frozen=True)
class Diversity:
    """Nodes, and workloads of many pod classes."""

    nodes: int = 5000
    pods: int = 20_000
    classes: int = 5000

    def make_nodes(self) -> tuple[NodeFacts, ...]:
        return tuple(
            NodeFacts(
                f"node-{number}",
                uid=f"node-{number}",
                allocatable=(("cpu", 64_000), ("memory", 256 << 30), ("pods", 110)),
                labels={HOST: f"node-{number}", "zone": f"z{number % 3}", "pool": f"p{number % 100}"},
            )
            for number in range(self.nodes)
        )

    def make_classes(self, wave: int) -> tuple[PodClass, ...]:
        return tuple(self._class(wave, number) for number in range(self.classes))

    def make_gangs(self, wave: int) -> Iterator[tuple[GangFacts, tuple[PodFacts, ...]]]:
        for number in range(self.pods // GANG_SIZE):
            name = f"w{wave}-{number}"
            facts = GangFacts(f"test/default/{name}", "test", "default", name, minimum=GANG_SIZE, total=GANG_SIZE)
            yield (
                replace(facts, created_seconds=number),
                tuple(
                    PodFacts(
                        f"{name}-{index}",
                        "default",
                        f"{name}-{index}",
                        f"w{wave}-c{number % self.classes}",
                        gang=facts.id,
                        created_seconds=number,
                    )
                    for index in range(GANG_SIZE)
                ),
            )

    def fits(self, class_id: str) -> bool:
        return int(class_id.rsplit("c", 1)[1]) % 4 != 0

    def place(self, group: SolveGroup) -> SolveResult:
        """Placement's answer, without regard to what is free."""
        gang = group.gangs[0]
        class_id = gang.roles[0].class_id
        if self.fits(class_id):
            node = f"node-{int(class_id.rsplit('c', 1)[1]) % self.nodes}"
            places = tuple(Assignment(gang.id, index, node, role.wanted) for index, role in enumerate(gang.roles))
            return SolveResult(group.id, SolveOutcome.PLACED, places)
        why = Explanation(f"0/{self.nodes} nodes are available", gang=gang.id, class_id=class_id)
        return SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=why)

    def _class(self, wave: int, number: int) -> PodClass:
        host = f"node-{number % self.nodes}" if number % 4 else f"gone-{number}"
        requests = (("cpu", 100 + wave), ("memory", 1 << 20), ("pods", 1))
        return PodClass(f"w{wave}-c{number}", requests, ((HOST, host),))


class Drive:
    """Feeds a core, and takes the processor time of each step: that is how long it holds an otherwise idle loop."""

    def __init__(self, scenario: Diversity, replicas: int = 2) -> None:
        self.scenario = scenario
        self.machine = Machine()
        self.steps: defaultdict[str, list[float]] = defaultdict(list)
        """Seconds of every step, by what was told."""
        self.bound: dict[str, str] = {}
        self.phases: Counter[effects.Phase | None] = Counter()
        self._under_way: deque[effects.Effect] = deque()
        self._monotonic = 0.0
        self.tell(events.Recovered(()), events.Replicas(replicas))

    def tell(self, *events_: events.Event) -> None:
        """One step."""
        now = events.Now(self._monotonic, 1e9 + self._monotonic)
        began = time.thread_time()
        done = self.machine.step(events_, now)
        self.steps[" ".join(sorted({type(each).__name__ for each in events_}))].append(time.thread_time() - began)
        self._under_way += done

    def settle(self, most_steps: int = 3000) -> int:
        """Carry out all effects, and let time pass as long as the core waits for it; returns the number of steps."""
        count = 0
        while count < most_steps:
            while self._under_way and count < most_steps:
                count += self._do(self._under_way.popleft())
            wake = self.machine.next_wake()
            if wake is None or wake > self._monotonic + 60:
                break
            self._monotonic = max(wake, self._monotonic)
            self.tell(events.Tick())
            count += 1
        return count

    def wait(self, seconds: float) -> None:
        """Time passes without events."""
        end = self._monotonic + seconds
        while (wake := self.machine.next_wake()) is not None and wake <= end:
            self._monotonic = max(wake, self._monotonic)
            self.tell(events.Tick())
            while self._under_way:
                self._do(self._under_way.popleft())
        self._monotonic = end

    def _do(self, effect: effects.Effect) -> int:
        match effect:
            case effects.Solve():
                results = tuple(
                    SolveResult(group.id, SolveOutcome.INFEASIBLE)
                    if effect.potential_victims
                    else self.scenario.place(group)
                    for group in effect.groups
                )
                self._monotonic += 0.05
                self.tell(events.Solved(effect.solve_id, results))
            case effects.Persist():
                self.tell(events.Persisted(effect.persist_id))
            case effects.Bind():
                self.bound.update((seat.uid, seat.node) for seat in effect.seats)
                done = (events.BindResult(seat.uid, events.BindOutcome.BOUND, seat.node) for seat in effect.seats)
                self.tell(events.BindResults(tuple(done)))
            case _:
                return 0
        return 1


def resident_mib() -> float:
    """Memory of this process."""
    gc.collect()
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def entries(machine: Machine) -> dict[str, int]:
    """Sizes of what the core knows by class, node, pod and gang."""
    cache = machine.cache
    ledger, capacity = cache.ledger, cache.ledger.capacity
    return {
        "classes": len(ledger.classes),
        "class_rows": len(capacity.classes),
        "resources": len(capacity.resources),
        "eligible": len(ledger.eligible),
        "gangs": len(cache.gangs),
        "groups": len(cache.groups),
        "pods": len(cache.gang_of),
        "reserved": len(ledger.reserved),
    }


def wave(drive: Drive, number: int, found: dict[str, PodFacts], gangs: dict[str, GangFacts]) -> None:
    """One wave of workloads comes, and is observed where it was bound."""
    classes = drive.scenario.make_classes(number)
    for start in range(0, len(classes), CHUNK):
        drive.tell(events.Delta(Batch(pod_classes=classes[start : start + CHUNK])))
    made = list(drive.scenario.make_gangs(number))
    for start in range(0, len(made), CHUNK // GANG_SIZE):
        some = made[start : start + CHUNK // GANG_SIZE]
        pods = tuple(pod for _, members in some for pod in members)
        gangs.update((facts.id, facts) for facts, _ in some)
        found.update((pod.uid, pod) for pod in pods)
        drive.tell(events.Delta(Batch(gangs=tuple(facts for facts, _ in some), pods=pods)))
    drive.settle()
    running = [
        replace(found[uid], node=node, phase=PodPhase.RUNNING) for uid, node in drive.bound.items() if uid in found
    ]
    found.update((pod.uid, pod) for pod in running)
    for start in range(0, len(running), CHUNK):
        drive.tell(events.Delta(Batch(pods=tuple(running[start : start + CHUNK]))))
    drive.settle()


def gone(drive: Drive, number: int, found: dict[str, PodFacts], gangs: dict[str, GangFacts]) -> None:
    """The wave is deleted, and so are its classes."""
    uids, ids = list(found), list(gangs)
    for start in range(0, len(uids), CHUNK):
        drive.tell(events.Delta(Batch(removed_pods=tuple(uids[start : start + CHUNK]))))
    for start in range(0, len(ids), CHUNK):
        drive.tell(events.Delta(Batch(removed_gangs=tuple(ids[start : start + CHUNK]))))
    classes = tuple(each.id for each in drive.scenario.make_classes(number))
    drive.tell(events.Delta(Batch(removed_pod_classes=classes)))
    drive.tell(events.Delta(Batch(removed_pod_classes=("none",))))  # classes are forgotten when others are removed
    found.clear()
    gangs.clear()
    drive.bound.clear()
    drive.settle()


def report(drive: Drive) -> dict[str, dict[str, float]]:
    """Number of steps, and the longest of them in milliseconds, by what was told."""
    return {
        what: {"steps": len(seconds), "longest_ms": round(max(seconds) * 1000, 1)}
        for what, seconds in sorted(drive.steps.items(), key=lambda item: -max(item[1]))
    }


def run(scenario: Diversity, rounds: int) -> Iterator[dict[str, object]]:
    """Plays the scenario; yields figures after each round."""
    drive = Drive(scenario)
    nodes = scenario.make_nodes()
    found: dict[str, PodFacts] = {}
    gangs: dict[str, GangFacts] = {}
    drive.tell(events.Snapshot(Batch(nodes=nodes)))
    yield {"round": 0, "steps": report(drive), "memory_mib": round(resident_mib()), "entries": entries(drive.machine)}
    for number in range(1, rounds + 1):
        drive.steps.clear()
        wave(drive, number, found, gangs)
        running = sum(bool(pod.node) for pod in found.values())
        yield {"round": number, "running": running, "steps": report(drive), "memory_mib": round(resident_mib())}
        drive.steps.clear()
        drive.wait(400)
        yield {"round": number, "what": "waited", "steps": report(drive)}
        drive.steps.clear()
        classes = scenario.make_classes(number)
        everything = Batch(pod_classes=classes, nodes=nodes, pods=tuple(found.values()), gangs=tuple(gangs.values()))
        drive.tell(events.Snapshot(everything))
        drive.settle()
        yield {"round": number, "what": "snapshot", "steps": report(drive)}
        drive.steps.clear()
        changed = tuple(replace(node, unschedulable=True) for node in nodes[:CHUNK])
        drive.tell(events.Delta(Batch(nodes=changed)))
        drive.tell(events.Delta(Batch(nodes=nodes[:CHUNK])))
        drive.settle()
        yield {"round": number, "what": "nodes changed", "steps": report(drive)}
        drive.steps.clear()
        gone(drive, number, found, gangs)
        yield {
            "round": number,
            "what": "gone",
            "steps": report(drive),
            "memory_mib": round(resident_mib()),
            "entries": entries(drive.machine),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args(arguments)
    scenario = Diversity(options.nodes, options.pods, options.classes)
    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    for figures in run(scenario, options.rounds):
        print(json.dumps(figures), flush=True)
    if options.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    main()
