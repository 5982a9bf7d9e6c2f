"""Quality of expected starts: a synthetic day is played, and every half hour the gangs that wait are forecast.

    python tests/bench/forecast.py --gpus 512 --days 1

Durations are those of `muster generate-trace`. Gangs belong to owners whose gangs run about equally long, and half of
the gangs declare a limit, 1.2 to 4 times as long as they run. Nothing is forecast for the first quarter of the time, in
which run lengths are learnt. Prints, for forecasts from declarations alone and with what was learnt, the quantiles of
the error: expected start minus actual start.
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from muster.coordinator.core.effects import Report
from muster.coordinator.core.events import Rules
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.placement_process import own_placement
from muster.forecast.player import Ended, Evicted, Happening, Player, Started
from muster.forecast.replay import EPOCH, gang_id, pod_id, uniform_nodes
from muster.forecast.run_lengths import RunLengths
from muster.forecast.start_errors import StartErrors
from muster.forecast.starts import StartForecaster
from muster.forecast.submissions import Submission, parse_requests
from muster.forecast.synthetic import DAY_SECONDS, Workload, generate
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import Verdict
from muster.gangs.facts import PODS, Amounts, Batch, GangFacts, PodClass, PodFacts
from muster.kube.pod_class import identified

OWNERS = 60
SCATTER = 0.05
"""How much the durations of an owner scatter, as a share of the range of all."""
INTERVAL_SECONDS = 1800.0
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
NODE = parse_requests("cpu=96,memory=1Ti,nvidia.com/gpu=8")


class Forecast(NamedTuple):
    """What was expected at a time."""

    gang: str
    at: float
    expected: float | None
    earliest: float | None
    latest: float | None


@dataclass
class Forecasts:
    """What was forecast in one way."""

    made: list[Forecast] = field(default_factory=list)
    stated: list[Forecast] = field(default_factory=list)
    """Those with a range that states which share of starts it has."""
    unknown: int = 0
    seconds: float = 0.0

    def figures(self, started: dict[str, float]) -> dict[str, Any]:
        """Errors in minutes, of forecasts that named a time for gangs that started."""
        known = [each for each in self.made if each.expected is not None and each.gang in started]
        errors = [(each.expected - started[each.gang]) / 60 for each in known if each.expected is not None]
        waits = [max(1.0, (started[each.gang] - each.at) / 60) for each in known]
        return {
            "forecasts": len(self.made),
            "with_a_time": len(known),
            "not_foreseen": sum(each.expected is None for each in self.made),
            "not_found_in_time": self.unknown,
            "error_minutes": {f"p{q * 100:.0f}": round(_quantile(sorted(errors), q), 1) for q in QUANTILES},
            "absolute_error_minutes_median": _median(map(abs, errors)),
            "error_by_wait_median": _median(abs(error) / wait for error, wait in zip(errors, waits, strict=True)),
            "in_range": _in_range(self.made, started),
            "of_stated_ranges": _in_range(self.stated, started),
            "stated_ranges": len(self.stated),
            "range_by_wait_median": _median(_widths(self.stated, started)),
            "seconds_per_forecast": round(self.seconds / max(1, len({each.at for each in self.made})), 2),
        }


def _in_range(made: Sequence[Forecast], started: dict[str, float]) -> float | None:
    """Share of the actual starts of gangs that were in the range."""
    inside = [
        each.earliest <= started[each.gang] <= each.latest
        for each in made
        if each.gang in started and each.earliest is not None and each.latest is not None
    ]
    return round(sum(inside) / len(inside), 2) if inside else None


def _widths(made: Sequence[Forecast], started: dict[str, float]) -> list[float]:
    """Widths of ranges, as shares of the time that the gang still waited."""
    return [
        (each.latest - each.earliest) / max(60.0, started[each.gang] - each.at)
        for each in made
        if each.gang in started and each.earliest is not None and each.latest is not None
    ]


class Day:
    """Submissions with owners and declarations, played on a virtual cluster."""

    def __init__(self, gpus: int, days: float, load: float, seed: int) -> None:
        random = Random(seed)
        submissions = generate(Workload(days, gpus, load, seed))
        durations = sorted(each.duration_seconds for each in submissions)
        self.durations: dict[str, float] = {}
        self.declared: dict[str, float] = {}
        self.submissions: list[Submission] = []
        for number, each in enumerate(submissions):
            rank = bisect_left(durations, each.duration_seconds) / len(durations) + random.gauss(0, SCATTER)
            owner = min(OWNERS - 1, max(0, int(rank * OWNERS)))
            named = replace(each, namespace=f"team-{_word(owner)}", name=f"job-{number}")
            self.submissions.append(named)
            self.durations[gang_id(named)] = named.duration_seconds
            if random.random() < 0.5:
                self.declared[gang_id(named)] = named.duration_seconds * random.uniform(1.2, 4.0)
        start = uniform_nodes(max(1, gpus // 8), _with_pods(NODE), 16)
        self.nodes, self.trees = start.batch.nodes, start.batch.trees
        self.days = days
        self._classes: dict[Amounts, PodClass] = {}

    def batch(self, submission: Submission) -> Batch:
        """The facts of a gang."""
        gang, created = gang_id(submission), EPOCH + int(submission.at_seconds)
        new = submission.requests not in self._classes
        pod_class = self._classes.setdefault(submission.requests, identified(PodClass("", submission.requests)))
        facts = GangFacts(
            gang,
            "trace",
            submission.namespace,
            submission.name,
            incarnation=gang,
            minimum=submission.members,
            priority=submission.priority,
            created_seconds=created,
            constraints=submission.constraints,
        )
        pods = tuple(
            PodFacts(
                pod_id(gang, index),
                submission.namespace,
                f"{submission.name}-{index}",
                pod_class.id,
                gang=gang,
                priority=submission.priority,
                created_seconds=created,
                expected_seconds=self.declared.get(gang, 0.0),
            )
            for index in range(submission.members)
        )
        return Batch(pod_classes=(pod_class,) if new else (), gangs=(facts,), pods=pods)


async def play(day: Day, limit: float) -> dict[str, Any]:
    """Play the day; figures of the forecasts."""
    cluster = VirtualCluster()
    cluster.apply(Batch(nodes=tuple(day.nodes), trees=tuple(day.trees)))
    stream, other = ClusterStream(cluster), ClusterStream(VirtualCluster())
    lengths, nothing = RunLengths(), RunLengths()
    errors = {"declared": StartErrors(), "learnt": StartErrors()}
    started: dict[str, float] = {}

    def observe(now: float, happening: Happening) -> None:
        match happening:
            case Started(gangs, _):
                for gang in gangs:
                    started.setdefault(gang, now)
                    for each in errors.values():
                        each.started(gang, now)
            case Ended(pods):
                for pod in pods:
                    lengths.ended(pod, now)
            case Evicted() | Report():
                pass

    ways = {"declared": (nothing, Forecasts()), "learnt": (lengths, Forecasts())}
    async with own_placement(stream) as solver, own_placement(other) as forecasting:
        forecaster = StartForecaster(other, forecasting)
        player = Player(
            cluster,
            solver,
            rules=Rules(),
            now=float(EPOCH),
            on_change=stream.change,
            observe=observe,
            run_seconds=lambda pod: day.durations[pod.gang],
        )
        for each in day.submissions:
            player.at(EPOCH + each.at_seconds, lambda each=each: day.batch(each))  # type: ignore[misc]
        await player.begin()
        end = EPOCH + day.days * DAY_SECONDS
        at = EPOCH + day.days * DAY_SECONDS / 4
        while at < end:
            while await player.advance(at):
                pass
            player.now = at
            for name, (known, forecasts) in ways.items():
                began = time.monotonic()
                found = await forecaster.starts(
                    player.present({}), known, errors[name], horizon_seconds=7 * DAY_SECONDS, limit_seconds=limit
                )
                forecasts.seconds += time.monotonic() - began
                for start in found.gangs:
                    forecasts.unknown += start.verdict is Verdict.UNKNOWN
                    made = Forecast(start.gang, at, start.expected, start.earliest, start.latest)
                    forecasts.made.append(made)
                    if found.range_share:
                        forecasts.stated.append(made)
            print(f"{(at - EPOCH) / 3600:.1f} h: {len(found.gangs)} gangs wait", file=sys.stderr)
            at += INTERVAL_SECONDS
        while player.next_due is not None and await player.advance(math.inf):
            pass
    return {
        "gangs": len(day.submissions),
        "started": len(started),
        **{name: forecasts.figures(started) for name, (_, forecasts) in ways.items()},
    }


def _word(number: int) -> str:
    """A name without digits, which would be taken for the number of a run."""
    return chr(ord("a") + number // 26) + chr(ord("a") + number % 26)


def _with_pods(amounts: Iterable[tuple[str, int]]) -> Amounts:
    return tuple(sorted({**dict(amounts), PODS: 110}.items()))


def _quantile(ordered: Sequence[float], quantile: float) -> float:
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else math.nan


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(statistics.median(found), 2) if found else None


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=512, help="GPUs of the cluster, 8 of each node")
    parser.add_argument("--days", type=float, default=1.0, help="time for which gangs are submitted")
    parser.add_argument("--load", type=float, default=1.0, help="GPU time submitted, as a share of what there is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each forecast")
    options = parser.parse_args()
    day = Day(options.gpus, options.days, options.load, options.seed)
    print(json.dumps(asyncio.run(play(day, options.limit)), indent=2))


if __name__ == "__main__":
    main()
