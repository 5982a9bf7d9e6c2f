"""Compares what what-if says with what happens: a leader with a random past, a copy of what it knows, and then the gang
is submitted to that leader itself.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from builders.forecast.random_clusters import RandomCluster
from builders.forecast.solver import FirstFit
from muster.coordinator.core.effects import Phase
from muster.forecast.alternatives import Alternative
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.placement_process import own_placement
from muster.forecast.player import Evicted, Happening, Player, Solver, Started
from muster.forecast.remedies import changed, remedies
from muster.forecast.snapshot import Snapshot, read, write
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import NOW_SECONDS, Forecaster, Question, Verdict

WEEK = 7 * 86_400.0
QUIET_SECONDS = 86_400.0
"""A gang that has not started this long after the last end of pods is taken never to start."""
PRIORITIES = {"low": -1, "high": 20}


@dataclass(frozen=True)
class Outcome:
    """What was said, or what happened: the gang's nodes by pod, and the victims by gang."""

    verdict: Verdict
    after_seconds: float | None
    nodes: dict[str, str]
    victims: dict[str, list[str]]


@dataclass(frozen=True)
class Comparison:
    """One cluster: what was said and what happened, and the changes that were said to help and did not."""

    seed: int
    said: Outcome
    happened: Outcome
    remedies: int
    false_remedies: tuple[str, ...]

    @property
    def true(self) -> bool:
        return self.said == self.happened and not self.false_remedies


class Truth:
    """Leaders and forecasts, each with a solver of its own."""

    def __init__(self, leads: tuple[ClusterStream, Solver], foretells: tuple[ClusterStream, Solver]) -> None:
        self._stream, self._solver = leads
        self._forecaster = Forecaster(*foretells)
        self._revision = 0

    async def compare(self, seed: int) -> Comparison:
        """What is said of the gang of this cluster, and what happens to it and to the variants that should help."""
        real = await self._leader(seed)
        question = Question(real.cluster.question(real.player.now))
        present = _through_a_file(real.player.present(real.cluster.settings))
        answer = await self._forecaster.ask(present, question, horizon_seconds=WEEK, limit_seconds=60)
        said = Outcome(
            answer.verdict,
            answer.after_seconds,
            dict(answer.nodes),
            {gang: sorted(pods) for gang, pods in answer.victims.items()},
        )
        happened = await self._submit(real, question)
        helping: Sequence[Alternative] = ()
        if said.verdict is not Verdict.NOW:
            helping = await remedies(self._forecaster, present, question, PRIORITIES, 60)
        false = [each.text for each in helping if not await self._helps(seed, each)]
        return Comparison(seed, said, happened, len(helping), tuple(false))

    async def _helps(self, seed: int, alternative: Alternative) -> bool:
        real = await self._leader(seed)
        question = Question(real.cluster.question(real.player.now))
        outcome = await self._submit(real, changed(question, alternative))
        return outcome.verdict is Verdict.NOW

    async def _leader(self, seed: int) -> "_Real":
        cluster, seen = RandomCluster(seed), _Seen()
        player = await cluster.leader(self._stream, self._solver, self._revision, seen.observe)
        return _Real(cluster, player, seen)

    async def _submit(self, real: "_Real", question: Question) -> Outcome:
        """Submit the gang to the leader, and let time pass until it runs, or nothing can help it any more."""
        player, seen, since = real.player, real.seen, real.player.now
        (gang,) = question.added.gangs
        seen.watch(gang.id)
        await player.change(*question.before)
        await player.change(question.added)
        last, verdict = player.now, Verdict.NOW
        while gang.id not in player.machine.cache.gangs or (
            player.machine.cache.gangs[gang.id].phase is not Phase.SATISFIED
        ):
            last = max(last, player.next_due or last)
            if not await player.advance(last + QUIET_SECONDS):
                verdict = Verdict.NEVER
                break
        self._revision = player.cluster.revision
        if verdict is Verdict.NEVER:
            return Outcome(verdict, None, {}, {})
        verdict = Verdict.NOW if player.now - since <= NOW_SECONDS else Verdict.LATER
        asked = {pod.uid for pod in question.added.pods}
        nodes = {uid: node for uid, node in seen.nodes.items() if uid in asked}
        return Outcome(verdict, player.now - since, nodes, seen.victims)


def _through_a_file(present: Snapshot) -> Snapshot:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "snapshot.zip"
        write(present, path)
        return read(path)


class _Seen:
    """What happens for a gang."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.victims: dict[str, list[str]] = {}
        self._gang = ""

    def watch(self, gang: str) -> None:
        self._gang = gang

    def observe(self, _now: float, happening: Happening) -> None:
        match happening:
            case Started(_, nodes) if self._gang:
                self.nodes.update(nodes)
            case Evicted(gang, pods, preemptor) if preemptor == self._gang:
                names = [*self.victims.get(gang, ()), *(f"{pod.namespace}/{pod.name}" for pod in pods)]
                self.victims[gang] = sorted(names)
            case _:
                pass


@dataclass(frozen=True)
class _Real:
    cluster: RandomCluster
    player: Player
    seen: _Seen


def by_first_fit() -> Truth:
    """Solved by the solver of scenarios."""
    streams = [ClusterStream(VirtualCluster()) for _ in range(2)]
    leads, foretells = ((stream, FirstFit(stream)) for stream in streams)
    return Truth(leads, foretells)


_WITHOUT_LIMITS = "placement", "--seconds-per-group", "600"
"""On a busy machine an answer that is cut off by time would be another one."""


@asynccontextmanager
async def by_placement() -> AsyncIterator[Truth]:
    """Solved by placement, in two processes."""
    leads, foretells = (ClusterStream(VirtualCluster()) for _ in range(2))
    async with (
        own_placement(leads, _WITHOUT_LIMITS, 600) as solver,
        own_placement(foretells, _WITHOUT_LIMITS, 600) as other,
    ):
        yield Truth((leads, solver), (foretells, other))
