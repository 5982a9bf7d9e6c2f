"""Expected starts of gangs that wait, with a range, over declared and learnt run lengths."""

import asyncio

import pytest
from msgspec.structs import replace

from builders.core.objects import node, racks
from builders.forecast.random_clusters import BEGIN, CLASSES, facts
from builders.forecast.solver import FirstFit
from builders.gangs.facts import CoreGang, gang
from builders.wait import yield_to_loop
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.player import Player
from muster.forecast.rules import rules_of
from muster.forecast.run_lengths import Known, RunLengths
from muster.forecast.snapshot import Snapshot
from muster.forecast.start_errors import LEAST_SAMPLES, SHARE, StartErrors
from muster.forecast.starts import ExpectedStart, StartForecaster, Starts
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import Verdict
from muster.gangs.facts import Batch, PodFacts, PodPhase

WEEK = 7 * 86_400.0
NOTHING = RunLengths()


async def cluster_with(*gangs: CoreGang, every_seconds: float = 0.0) -> Snapshot:
    """What a leader knows after these gangs were submitted to a node with 4 cpus, with this time between them."""
    cluster = VirtualCluster()
    cluster.apply(Batch(pod_classes=CLASSES, nodes=(node("a", 4),), trees=(racks(),)))
    stream = ClusterStream(cluster)
    player = Player(
        cluster,
        FirstFit(stream),
        rules=rules_of({}),
        now=BEGIN,
        on_change=stream.change,
        observe=lambda _now, _happening: None,
    )
    await player.begin()
    for each in gangs:
        await player.change(facts(each.created(int(player.now))))
        end = player.now + every_seconds
        while await player.advance(end):
            pass
        player.now = end
    return player.present({})


async def forecast(present: Snapshot, lengths: RunLengths = NOTHING, *, limit_seconds: float = 60) -> Starts:
    stream = ClusterStream(VirtualCluster())
    forecaster = StartForecaster(stream, FirstFit(stream))
    return await forecaster.starts(present, lengths, horizon_seconds=WEEK, limit_seconds=limit_seconds)


def named(starts: Starts) -> dict[str, ExpectedStart]:
    return {each.gang.rpartition("/")[2]: each for each in starts.gangs}


def after(seconds: float | None) -> float | None:
    return seconds - BEGIN if seconds is not None else None


def past(series: str, *seconds: float) -> RunLengths:
    lengths = RunLengths()
    for number, each in enumerate(seconds):
        (pod,) = gang(f"{series}-{number}").of(1).pods()
        ran = replace(pod, node="a", phase=PodPhase.RUNNING, started_seconds=int(BEGIN - each))
        lengths.ended(ran, BEGIN)
    return lengths


async def test_gangs_start_one_after_another_as_their_pods_end() -> None:
    runs = gang("runs").of(4).running_for(600)
    starts = await forecast(await cluster_with(runs, gang("b").of(3).running_for(100), gang("c").of(2)))

    assert [each.gang for each in starts.gangs] == ["test/default/b", "test/default/c"]
    found = named(starts)
    assert found["b"].verdict is found["c"].verdict is Verdict.LATER
    assert after(found["b"].expected) == pytest.approx(600, abs=2)
    assert after(found["c"].expected) == pytest.approx(700, abs=3)
    assert starts.ends == {Known.DECLARED: 4}


async def test_a_gang_behind_pods_without_a_known_end_is_not_foreseen() -> None:
    starts = await forecast(await cluster_with(gang("runs").of(4), gang("b").of(3)))

    assert named(starts)["b"] == ExpectedStart("test/default/b", Verdict.NEVER, None, None, None)
    assert starts.ends == {Known.UNKNOWN: 4}


async def test_run_lengths_that_were_learnt_give_a_range() -> None:
    present = await cluster_with(gang("etl-9").of(4), gang("b").of(3))
    starts = await forecast(present, past("etl", *range(100, 1100, 100)))
    found = named(starts)["b"]

    assert found.verdict is Verdict.LATER
    assert [after(each) for each in (found.earliest, found.expected, found.latest)] == [200, 600, 1000]
    assert starts.range_share == 0, "nobody knows how many starts are in it"
    assert starts.ends == {Known.LEARNT: 4}


async def test_ranges_come_from_the_errors_of_earlier_starts_as_soon_as_they_are_known() -> None:
    errors = StartErrors()
    for number in range(LEAST_SAMPLES):
        errors.expect([(f"earlier-{number}", BEGIN + 540)], BEGIN)
        errors.started(f"earlier-{number}", BEGIN + (240 if number % 2 else 1140))
    present = await cluster_with(gang("runs").of(4).running_for(540), gang("b").of(3))
    stream = ClusterStream(VirtualCluster())
    solver = Counting(stream)
    forecaster = StartForecaster(stream, solver)
    starts = await forecaster.starts(present, NOTHING, errors, horizon_seconds=WEEK, limit_seconds=60)
    found = named(starts)["b"]

    assert [round(after(each) or 0) for each in (found.earliest, found.expected, found.latest)] == [240, 540, 1140]
    assert starts.range_share == SHARE
    played_once, solver.solves = solver.solves, 0
    await forecaster.starts(present, NOTHING, horizon_seconds=WEEK, limit_seconds=60)
    assert solver.solves == 3 * played_once, "without errors the cluster is played with three run lengths"


class Counting(FirstFit):
    """Counts solve requests."""

    solves = 0

    async def solve(self, effect: Solve) -> Solved:
        self.solves += 1
        return await super().solve(effect)


async def test_learnt_run_lengths_do_not_change_what_the_rules_know() -> None:
    """A gang is backfilled by what it declares, and not by how long earlier ones of its series ran."""
    gangs = (gang("runs").of(3).running_for(600), gang("large").of(4).running_for(10), gang("etl-9").of(1))
    present = await cluster_with(*gangs, every_seconds=40)
    starts = named(await forecast(present, past("etl", 10, 10, 10)))

    assert after(starts["large"].expected) == pytest.approx(600, abs=2)
    assert after(starts["etl-9"].expected) == pytest.approx(610, abs=3)


async def test_what_is_not_found_in_time_is_said_so() -> None:
    starts = await forecast(await cluster_with(gang("runs").of(4).running_for(600), gang("b").of(3)), limit_seconds=0)

    assert named(starts)["b"].verdict is Verdict.UNKNOWN


class Stuck(FirstFit):
    """Answers so many solve requests, and then none."""

    def __init__(self, stream: ClusterStream, solves: int) -> None:
        super().__init__(stream)
        self._left = solves

    async def solve(self, effect: Solve) -> Solved:
        self._left -= 1
        if self._left < 0:
            await asyncio.Event().wait()
        return await super().solve(effect)


async def test_what_is_not_found_in_time_is_left_out_and_the_answer_says_so() -> None:
    runs = gang("runs").of(4).running_for(600)
    present = await cluster_with(runs, gang("b").of(3).running_for(100), gang("c").of(4))
    complete = await forecast(present)
    assert not complete.partial

    verdicts = []
    for solves in range(8):
        stream = ClusterStream(VirtualCluster())
        forecaster = StartForecaster(stream, Stuck(stream, solves))
        found = await forecaster.starts(present, NOTHING, horizon_seconds=WEEK, limit_seconds=0.2)
        assert found.partial
        assert [each.gang for each in found.gangs] == [each.gang for each in complete.gangs]
        verdicts.append(tuple(each.verdict for each in found.gangs))
        for each, whole in zip(found.gangs, complete.gangs, strict=True):
            assert each.verdict in (Verdict.UNKNOWN, whole.verdict)
            assert each.expected in (None, whole.expected)
    assert verdicts[0] == (Verdict.UNKNOWN, Verdict.UNKNOWN)
    assert (Verdict.LATER, Verdict.UNKNOWN) in verdicts


async def test_i12_other_tasks_have_turns_while_a_copy_is_built() -> None:
    pods = tuple(PodFacts(f"p{number}", "default", f"p{number}", "c1") for number in range(20_000))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await yield_to_loop()

    counting = asyncio.create_task(count_turns())
    copied = await ClusterStream(VirtualCluster()).copy_of(Batch(pod_classes=CLASSES, pods=pods))
    counting.cancel()
    assert len(copied.pods) == len(pods)
    assert turns >= 10
