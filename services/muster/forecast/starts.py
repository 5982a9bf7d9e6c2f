"""When gangs that wait are expected to start: the cluster is played forward with pods that run as long as expected.

Nobody else submits anything, and what is not known to end does not. The range of a start is, as soon as enough expected
starts were compared with the actual ones, what the quantiles of their errors make of it (`StartErrors`). Until then the
cluster is played twice more: if pods run short, a gang starts at the earliest; if they run long, at the latest. Nothing
is known then of how many starts are in the range.

What is not found in time is left out, and the answer says so: the play with median run lengths comes first and has most
of the time.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from muster.coordinator.core.effects import Phase
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.full_collections import without_full_collections
from muster.forecast.player import Endless, Happening, Player, Solver, Started
from muster.forecast.rules import rules_of
from muster.forecast.run_lengths import Known, RunLengths
from muster.forecast.snapshot import Snapshot
from muster.forecast.start_errors import SHARE, Ranges, StartErrors
from muster.forecast.turns import in_turns
from muster.forecast.whatif import NOW_SECONDS, Verdict, precision_for, rest_seconds
from muster.gangs.facts import PodFacts

EARLY, MEDIAN, LATE = 0.1, 0.5, 0.9
PRECISION: Final = 0.05
"""Share of the time until then by which ends are rounded up where very many pods end at different times: a fraction of
the error that expected starts have anyway.
"""
_SHARES: Final = ((MEDIAN, 0.6), (EARLY, 0.5), (LATE, 1.0))
"""Quantiles in the order in which they are played, with the share of the time that is left for each."""


@dataclass(frozen=True)
class ExpectedStart:
    """When a gang starts, in Unix seconds; None: not found, or it does not."""

    gang: str
    verdict: Verdict
    expected: float | None
    earliest: float | None
    latest: float | None


@dataclass(frozen=True)
class Starts:
    """The gangs that wait, and how the ends of the pods are known on which their starts depend."""

    gangs: tuple[ExpectedStart, ...]
    ends: Mapping[Known, int]
    range_share: float = 0.0
    """Share of actual starts that ranges like these had; 0: not known."""
    partial: bool = False
    """Not all was played in time: starts or ranges may be missing."""


class StartForecaster:
    """Plays copies of a cluster, one after another. The placement of `solver` watches `stream`."""

    def __init__(self, stream: ClusterStream, solver: Solver, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._solver, self._clock = stream, solver, clock

    async def starts(
        self,
        present: Snapshot,
        lengths: RunLengths,
        errors: StartErrors | None = None,
        *,
        horizon_seconds: float,
        limit_seconds: float,
    ) -> Starts:
        """When each gang that waits starts. `errors`: of earlier answers, and is told of this one; `horizon_seconds`:
        how far to look ahead; `limit_seconds`: how long.
        """
        until, since = self._clock() + limit_seconds, present.unix_seconds
        ranges = errors.quantiles(since) if errors is not None and errors.are_known else None
        plays = []
        for quantile, share in ((MEDIAN, 1.0),) if ranges is not None else _SHARES:
            seconds = max(0.0, until - self._clock()) * share
            plays.append(await self._play(present, lengths, quantile, horizon_seconds, seconds))
        (found, complete), *others = plays
        gangs = []
        for gang, at in found.items():
            verdict = _verdict(at, since, complete=complete)
            earliest, latest = _range(at, since, ranges) if ranges is not None else _between(at, gang, others)
            gangs.append(ExpectedStart(gang, verdict, at, earliest, latest))
        if errors is not None:
            errors.expect(((each.gang, each.expected) for each in gangs), since)
        known: Counter[Known] = Counter()
        async for pod in in_turns(present.batch.pods):
            if pod.seated:
                known[lengths.of(pod, MEDIAN, since).known] += 1
        partial = not all(each for _, each in plays)
        return Starts(tuple(gangs), dict(known), SHARE if ranges is not None else 0.0, partial)

    async def _play(
        self, present: Snapshot, lengths: RunLengths, quantile: float, horizon: float, seconds: float
    ) -> tuple[dict[str, float | None], bool]:
        """When each gang that waits starts, as far as that is found in these seconds, and whether all was played."""
        starts: dict[str, float | None] = dict.fromkeys(await _with_pending_pods(present))
        complete = False
        deadline = self._clock() + seconds
        with without_full_collections(), suppress(TimeoutError, Endless):
            async with asyncio.timeout(seconds):
                complete = await self._play_into(starts, present, lengths, quantile, horizon, deadline)
        return starts, complete

    async def _play_into(
        self,
        starts: dict[str, float | None],
        present: Snapshot,
        lengths: RunLengths,
        quantile: float,
        horizon: float,
        deadline: float,
    ) -> bool:
        """Put in when each gang that waits starts, as it is found. Returns whether all was played. Raises Endless."""
        cluster = await self._stream.copy_of(present.batch)
        seen = _Bound()
        since = present.unix_seconds
        learnt: dict[str, float] = {}

        def run_seconds(pod: PodFacts) -> float:
            """Pods that run now have their run length once; others run as long as one that begins."""
            if pod.uid not in learnt:
                learnt[pod.uid] = lengths.of(pod, quantile, since).seconds
            return learnt[pod.uid]

        player = Player(
            cluster,
            self._solver,
            rules=rules_of(present.settings),
            now=since,
            on_change=self._stream.change,
            observe=seen.observe,
            resumes=present.term_state,
            run_seconds=run_seconds,
            precision=await precision_for(present.batch, run_seconds, PRECISION),
            reports=False,
        )
        self._stream.begin(cluster)
        await player.begin(present.records)
        waiting = _waiting(player)
        starts.clear()
        starts.update(dict.fromkeys(waiting))
        missing = set(waiting)
        seen.take_all(missing)
        return await self._play_on(player, seen, starts, missing, since + horizon, deadline)

    async def _play_on(
        self,
        player: Player,
        seen: "_Bound",
        starts: dict[str, float | None],
        missing: set[str],
        horizon: float,
        deadline: float,
    ) -> bool:
        rest, last_due = rest_seconds(player.machine.rules), player.now
        while True:
            known = player.machine.cache.gangs
            for gang in seen.take(missing):
                if gang in known and known[gang].phase is Phase.SATISFIED:
                    starts[gang] = player.now
                    missing.discard(gang)
            if not missing:
                return True
            if self._clock() > deadline:
                return False
            if player.next_due is not None:
                last_due = max(player.now, player.next_due)
            if not await player.advance(min(last_due + rest, horizon)):
                return player.now < horizon


class _Bound:
    """Gangs of which pods were bound, or that were not looked at yet."""

    def __init__(self) -> None:
        self._gangs: set[str] = set()

    def observe(self, _now: float, happening: Happening) -> None:
        if isinstance(happening, Started):
            self._gangs.update(happening.gangs)

    def take_all(self, gangs: set[str]) -> None:
        self._gangs |= gangs

    def take(self, missing: set[str]) -> set[str]:
        """Those of the missing ones that may have started since the last call."""
        found, self._gangs = self._gangs & missing, set()
        return found


async def _with_pending_pods(present: Snapshot) -> list[str]:
    """Gangs of which no pod runs and some is to be placed, for an answer without a play."""
    running: set[str] = set()
    pending: dict[str, None] = {}
    async for pod in in_turns(present.batch.pods):
        if pod.seated:
            running.add(pod.gang)
        elif pod.gang and not pod.node and not pod.phase.ended:
            pending[pod.gang] = None
    return [gang for gang in pending if gang not in running]


def _waiting(player: Player) -> list[str]:
    """The gangs that wait for a start, in queue order."""
    phases = {Phase.QUEUED, Phase.SOLVING, Phase.WAITING, Phase.PERMITTED, Phase.BINDING}
    gangs = [gang for gang in player.machine.cache.gangs.values() if gang.phase in phases and gang.pending]
    return [gang.id for gang in sorted(gangs, key=lambda gang: gang.group.key)]


def _range(at: float | None, since: float, ranges: Ranges) -> tuple[float | None, float | None]:
    return ranges.of(at, since) if at is not None else (None, None)


def _between(
    at: float | None, gang: str, others: Sequence[tuple[Mapping[str, float | None], bool]]
) -> tuple[float | None, float | None]:
    """From the earliest to the latest start in plays with short and long run lengths."""
    early, late = (each.get(gang) for each, _ in others)
    times = [each for each in (at, early, late) if each is not None]
    return min(times, default=None), max(times) if late is not None else None


def _verdict(at: float | None, since: float, *, complete: bool) -> Verdict:
    if at is None:
        return Verdict.NEVER if complete else Verdict.UNKNOWN
    return Verdict.NOW if at - since <= NOW_SECONDS else Verdict.LATER
