"""Answers what would happen to gangs if they were submitted now: plays the machine forward on a copy of the cluster.

The machine begins with the cluster and the coordinator's records, as a new leader does, and then gets the gangs. Pods
end when that is expected. Nothing that is played reaches the cluster.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

from muster.coordinator.core.effects import Phase, Report
from muster.coordinator.core.events import Rules
from muster.coordinator.core.permits.permits import still_ranked
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.full_collections import without_full_collections
from muster.forecast.player import Ended, Endless, Evicted, Happening, Player, Solver, Started
from muster.forecast.rules import rules_of
from muster.forecast.snapshot import Snapshot
from muster.forecast.turns import in_turns
from muster.gangs.facts import Batch, PodFacts

NOW_SECONDS: Final = 10.0
"""What starts within this time starts now: it takes a few seconds to evict victims, and to see what they freed."""
PRECISION: Final = 0.02
"""Where very many pods end at different times, their ends are rounded up by up to this share of the time until then."""
_MANY_ENDS: Final = 500
_REST_SECONDS: Final = 300.0
"""Time for which the machine goes on without anything that could end, besides its own timeouts."""


class Verdict(StrEnum):
    """What would happen."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"
    """Not as long as nothing changes but the ends of pods that are known."""
    UNKNOWN = "unknown"
    """The answer was not found in time."""


@dataclass(frozen=True)
class Answer:
    """What would happen to the gangs that were asked about."""

    verdict: Verdict
    after_seconds: float | None = None
    """From now to the start of the last of them."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Node of each pod, by its uid."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Rank of each pod that has one, by its uid."""
    victims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of the pods that would be evicted for them, by gang."""
    waits_for: Sequence[str] = ()
    """Gangs that end before it starts, the last first."""
    reason: str = ""
    """Why it does not start, as it would be on its pods."""


class Question(NamedTuple):
    """Gangs that may be submitted: their facts, pods, and what they refer to."""

    added: Batch
    before: tuple[Batch, ...] = ()
    """Other changes of the cluster, which happen before."""
    replaced: Batch = Batch()
    """Gangs that are removed at the moment at which these are added."""


def rest_seconds(rules: Rules) -> float:
    """Time after which nothing more is to be expected of a machine in whose cluster nothing ends any more: capacity
    that was reserved, held or nominated in vain has been released, and others have been tried on it.
    """
    starves = rules.starvation_after_seconds + rules.reservation_timeout_seconds
    return _REST_SECONDS + starves + rules.max_waiting_time_seconds + rules.eviction_timeout_seconds


async def precision_for(
    cluster: Batch, run_seconds: Callable[[PodFacts], float], precision: float = PRECISION
) -> float:
    """How precisely the ends of the pods of this cluster are played: `precision`, if there are very many."""
    ends = set()
    async for pod in in_turns(cluster.pods):
        if pod.seated and (seconds := run_seconds(pod)) > 0:
            ends.add(pod.started_seconds + seconds)
    return precision if len(ends) > _MANY_ENDS else 0.0


class Forecaster:
    """Answers questions about copies of a cluster, one after another. The placement of `solver` watches `stream`."""

    def __init__(self, stream: ClusterStream, solver: Solver, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._solver, self._clock = stream, solver, clock

    async def starts_now(self, present: Snapshot, question: Question, limit_seconds: float) -> bool:
        """The gangs would start now."""
        answer = await self.ask(present, question, horizon_seconds=NOW_SECONDS, limit_seconds=limit_seconds)
        return answer.verdict is Verdict.NOW

    async def ask(
        self, present: Snapshot, question: Question, *, horizon_seconds: float, limit_seconds: float
    ) -> Answer:
        """What happens if the cluster changes as the question says.

        `horizon_seconds`: how far to look ahead in virtual time; `limit_seconds`: how long to look.
        """
        with without_full_collections():
            return await self._ask(present, question, horizon_seconds, limit_seconds)

    async def _ask(self, present: Snapshot, question: Question, horizon_seconds: float, limit_seconds: float) -> Answer:
        cluster = await self._stream.copy_of(present.batch)
        watched, since = _Watched(question.added), present.unix_seconds
        player = Player(
            cluster,
            self._solver,
            rules=rules_of(present.settings),
            now=since,
            on_change=self._stream.change,
            observe=watched.observe,
            resumes=present.term_state,
            precision=await precision_for(present.batch, attrgetter("expected_seconds")),
        )
        self._stream.begin(cluster)
        deadline = self._clock() + limit_seconds
        try:
            await player.begin(present.records)
            await player.change(*question.before)
            await player.change(question.replaced, question.added)
            verdict = await self._play(player, watched, since + horizon_seconds, deadline)
        except Endless:
            verdict = Verdict.UNKNOWN
        if verdict is Verdict.NOW and player.now - since > NOW_SECONDS:
            verdict = Verdict.LATER
        return watched.answer(player, verdict, since)

    async def _play(self, player: Player, watched: "_Watched", horizon: float, deadline: float) -> Verdict:
        """Play until the gangs have started (NOW), or nothing that could help will happen."""
        last_due, rest = player.now, rest_seconds(player.machine.rules)
        while not watched.all_started(player):
            if self._clock() > deadline:
                return Verdict.UNKNOWN
            if player.next_due is not None:
                last_due = max(player.now, player.next_due)
            if not await player.advance(min(last_due + rest, horizon)):
                return Verdict.NEVER
        return Verdict.NOW


class _Watched:
    """What happens to the gangs that are asked about, and for them."""

    def __init__(self, question: Batch) -> None:
        self.pods = {pod.uid: pod for pod in question.pods}
        self.gangs = {pod.gang or f"plain/{pod.namespace}/{pod.name}" for pod in question.pods if not pod.node}
        self._victims: dict[str, list[str]] = {}
        self._nodes: dict[str, str] = {}
        self._ended: dict[str, float] = {}
        self._reason = ""

    def observe(self, now: float, happening: Happening) -> None:
        match happening:
            case Started(_, nodes):
                self._nodes.update((uid, node) for uid, node in nodes.items() if uid in self.pods)
            case Evicted(gang, pods, preemptor):
                if preemptor in self.gangs:
                    self._victims.setdefault(gang, []).extend(f"{pod.namespace}/{pod.name}" for pod in pods)
            case Ended(pods):
                self._ended.update((pod.gang or f"{pod.namespace}/{pod.name}", now) for pod in pods)
            case Report(gang):
                if gang in self.gangs and happening.conditions:
                    self._reason = happening.conditions[-1].message

    def all_started(self, player: Player) -> bool:
        """All gangs run with their minimum at least."""
        known = player.machine.cache.gangs
        return all(gang in known and known[gang].phase is Phase.SATISFIED for gang in self.gangs)

    def answer(self, player: Player, verdict: Verdict, since: float) -> Answer:
        started = verdict in (Verdict.NOW, Verdict.LATER)
        known = player.machine.cache.gangs
        ranks = [pair for gang in self.gangs if gang in known for pair in still_ranked(known[gang])]
        ends = sorted(self._ended.items(), key=lambda pair: -pair[1])
        return Answer(
            verdict,
            player.now - since if started else None,
            self._nodes if started else {},
            dict(ranks) if started else {},
            self._victims if started else {},
            _names(ends) if verdict is Verdict.LATER else (),
            "" if started else self._reason,
        )


def _names(ends: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    return tuple(gang for gang, _ in ends)
