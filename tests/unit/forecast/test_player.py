"""Virtual time: what ends when, and how precisely that is played."""

import pytest
from msgspec.structs import replace

from builders.core.objects import node, plain_pod
from builders.forecast.random_clusters import BEGIN, CLASSES, RandomCluster
from builders.forecast.solver import FirstFit
from muster.coordinator.core.effects import Report
from muster.coordinator.core.events import Rules
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.player import Ended, Happening, Player
from muster.forecast.rules import rules_of
from muster.forecast.snapshot import Snapshot
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import PRECISION, precision_for
from muster.gangs.facts import Batch, PodFacts, PodPhase

MANY, FEW = 2000, 100


def running(count: int) -> Batch:
    """Pods that run, one of which ends each second."""
    pods = tuple(
        replace(
            plain_pod(f"p{index}"),
            node="a",
            phase=PodPhase.RUNNING,
            started_seconds=int(BEGIN),
            expected_seconds=index + 1.0,
        )
        for index in range(count)
    )
    return Batch(pod_classes=CLASSES, nodes=(node("a", count),), pods=pods)


def declared(pod: PodFacts) -> float:
    return pod.expected_seconds


async def ends(batch: Batch, precision: float) -> dict[str, float]:
    """When each pod ends, in seconds from the begin."""
    cluster, found = VirtualCluster(), dict[str, float]()
    cluster.apply(batch)
    stream = ClusterStream(cluster)

    def observe(now: float, happening: Happening) -> None:
        if isinstance(happening, Ended):
            found.update((pod.uid, now - BEGIN) for pod in happening.pods)

    player = Player(
        cluster,
        FirstFit(stream),
        rules=Rules(),
        now=BEGIN,
        on_change=stream.change,
        observe=observe,
        precision=precision,
    )
    await player.begin()
    while await player.advance(float("inf")):
        pass
    return found


@pytest.mark.parametrize(("count", "precision"), [(FEW, 0.0), (MANY, PRECISION)])
async def test_ends_are_rounded_only_if_there_are_very_many(count: int, precision: float) -> None:
    assert await precision_for(running(count), declared) == precision


async def test_few_ends_are_exact() -> None:
    found = await ends(running(FEW), 0.0)

    assert sorted(found.values()) == [index + 1.0 for index in range(FEW)]


async def test_many_ends_are_rounded_up_by_a_share_of_the_time_until_then() -> None:
    batch = running(MANY)
    found = await ends(batch, PRECISION)

    declared_ends = {pod.uid: pod.expected_seconds for pod in batch.pods}
    assert found.keys() == declared_ends.keys()
    assert all(0 <= found[uid] - end <= PRECISION * end for uid, end in declared_ends.items())
    assert len(set(found.values())) < MANY / 4


@pytest.mark.parametrize("seed", range(8))
async def test_a_machine_that_reports_no_reasons_decides_the_same(seed: int) -> None:
    """Expected starts are played so."""
    stream = ClusterStream(VirtualCluster())
    solver, made = FirstFit(stream), RandomCluster(seed)
    leader = await made.leader(stream, solver, 0, lambda _now, _happening: None)
    present = leader.present(made.settings)
    played = {reports: await _happenings(present, reports=reports) for reports in (True, False)}

    decided = {key: [each for each in some if not isinstance(each[1], Report)] for key, some in played.items()}
    assert decided[True] == decided[False]
    assert len(played[False]) <= len(played[True])


async def _happenings(present: Snapshot, *, reports: bool) -> list[tuple[float, Happening]]:
    """What happens in a day."""
    stream, found = ClusterStream(VirtualCluster()), list[tuple[float, Happening]]()
    cluster = await stream.copy_of(present.batch)
    player = Player(
        cluster,
        FirstFit(stream),
        rules=rules_of(present.settings),
        now=present.unix_seconds,
        on_change=stream.change,
        observe=lambda now, happening: found.append((now, happening)),
        resumes=present.term_state,
        reports=reports,
    )
    stream.begin(cluster)
    await player.begin(present.records)
    while await player.advance(present.unix_seconds + 86_400):
        pass
    return found


async def test_pods_that_end_together_are_one_change() -> None:
    """Very many changes, and objects for them, would hold the event loop."""
    pods = [replace(pod, expected_seconds=float(index // 10 + 1)) for index, pod in enumerate(running(FEW).pods)]
    cluster, together = VirtualCluster(), list[int]()
    cluster.apply(replace(running(FEW), pods=tuple(pods)))
    stream = ClusterStream(cluster)

    def observe(_now: float, happening: Happening) -> None:
        if isinstance(happening, Ended):
            together.append(len(happening.pods))

    player = Player(cluster, FirstFit(stream), rules=Rules(), now=BEGIN, on_change=stream.change, observe=observe)
    await player.begin()
    while await player.advance(float("inf")):
        pass
    assert together == [10] * 10
