"""Replays: gangs start, wait, are preempted and end as the coordinator's rules say, in virtual time."""

import pytest

from builders.core.objects import node, racks
from builders.forecast.random_clusters import BEGIN, CLASSES, facts
from builders.forecast.solver import FirstFit
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.events import Rules
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.player import Player
from muster.forecast.redaction import redact
from muster.forecast.replay import Mode, Outcome, Replay, Run, at_snapshot, uniform_nodes
from muster.forecast.replay_report import as_json
from muster.forecast.snapshot import Snapshot
from muster.forecast.submissions import Submission, parse_requests
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch

MINUTE = 60.0
NODE = (("cpu", 4000), ("pods", 110))


def job(name: str, at: float, members: int, minutes: float, *, priority: int = 0, cpu: int = 1) -> Submission:
    return Submission(at, "default", name, members, parse_requests(f"cpu={cpu}"), minutes * MINUTE, priority)


async def replayed(*jobs: Submission, nodes: int = 1, mode: Mode = Mode.MUSTER, rules: Rules | None = None) -> Outcome:
    replay = Replay(uniform_nodes(nodes, NODE, 0), jobs, rules=rules or Rules(), mode=mode)
    return await replay.run(FirstFit(replay.stream))


def named(outcome: Outcome) -> dict[str, Run]:
    return {run.submission.name: run for run in outcome.runs}


async def test_a_gang_waits_for_the_end_of_another() -> None:
    runs = named(await replayed(job("a", 0, 4, 10), job("b", 60, 4, 10)))

    assert runs["a"].waited_seconds == 0
    assert runs["b"].first_started == pytest.approx(10 * MINUTE, abs=1)
    assert runs["b"].ended == pytest.approx(20 * MINUTE, abs=2)


async def test_a_small_gang_is_backfilled() -> None:
    jobs = (job("a", 0, 3, 10), job("large", 10, 4, 10), job("small", 20, 1, 2))
    with_backfill, without = named(await replayed(*jobs)), named(await replayed(*jobs, mode=Mode.FCFS))

    assert with_backfill["small"].waited_seconds == pytest.approx(0, abs=1)
    assert without["small"].first_started == pytest.approx(20 * MINUTE, abs=2)
    assert without["large"].first_started == pytest.approx(10 * MINUTE, abs=1)


async def test_a_preempted_gang_runs_again() -> None:
    runs = named(await replayed(job("low", 0, 4, 10), job("high", 120, 4, 10, priority=9)))

    assert runs["high"].waited_seconds == pytest.approx(0, abs=1)
    assert (runs["low"].preemptions, runs["low"].evicted_pods) == (1, 4)
    assert runs["low"].ended == pytest.approx(22 * MINUTE, abs=3)


async def test_pods_that_are_placed_one_by_one_hold_what_others_could_use() -> None:
    jobs = (job("a", 0, 3, 10), job("b", 10, 3, 10), job("small", 20, 1, 2))
    by_gangs, by_pods = named(await replayed(*jobs)), named(await replayed(*jobs, mode=Mode.POD_BY_POD))

    assert by_gangs["small"].waited_seconds == pytest.approx(0, abs=1)
    assert by_pods["small"].first_started == pytest.approx(10 * MINUTE, abs=2)
    assert by_pods["b"].ended == by_gangs["b"].ended == pytest.approx(20 * MINUTE, abs=3)


async def test_a_gang_that_never_fits_is_counted_as_never_started() -> None:
    figures = as_json(await replayed(job("a", 0, 4, 10), job("huge", 0, 5, 10)))

    assert (figures["started"], figures["never_started"]) == (1, 1)
    assert figures["by_members"]["2-7"]["gangs"] == 2


async def test_utilisation_is_that_of_the_time_in_which_gangs_are_submitted() -> None:
    figures = as_json(await replayed(job("half", 0, 2, 10), job("last", 600, 1, 10)))

    assert figures["utilisation"]["cpu"] == pytest.approx(0.5, abs=0.01)
    assert figures["fragmentation"]["cpu"] == 1.0  # what was free was on the node in use


async def test_settings_change_what_happens() -> None:
    """With a share of nothing to reserve, small gangs starve the large one."""
    small = [job(f"s{index}", index * 50, 1, 4) for index in range(40)]
    jobs = (*small, job("large", 100, 4, 1))
    protected = named(await replayed(*jobs))["large"].waited_seconds
    starved = named(await replayed(*jobs, rules=Rules(starvation_after_seconds=1e6)))["large"].waited_seconds

    assert protected is not None and starved is not None
    assert protected < starved


async def snapshot_of(*gangs: CoreGang) -> Snapshot:
    """What a leader knows after these gangs were submitted to a node with 4 cpus."""
    cluster = VirtualCluster()
    cluster.apply(Batch(pod_classes=CLASSES, nodes=(node("a", 4),), trees=(racks(),)))
    stream = ClusterStream(cluster)
    player = Player(
        cluster,
        FirstFit(stream),
        rules=Rules(),
        now=BEGIN,
        on_change=stream.change,
        observe=lambda _now, _happening: None,
    )
    await player.begin()
    for each in gangs:
        await player.change(facts(each.created(int(player.now))))
    return player.present({"starvation-after-seconds": "600"})


async def replayed_on(snapshot: Snapshot, *jobs: Submission) -> Outcome:
    replay = Replay(at_snapshot(snapshot), jobs, rules=Rules())
    return await replay.run(FirstFit(replay.stream))


async def test_a_replay_goes_on_from_a_snapshot() -> None:
    """Pods that run hold their nodes until their expected ends, and gangs that wait are ahead of the trace."""
    snapshot = await snapshot_of(gang("running").of(4).running_for(600), gang("waiting").of(4).running_for(600))
    outcome = await replayed_on(snapshot, job("new", 60, 4, 10))

    figures = as_json(outcome)["snapshot"]
    assert (figures["running_pods"], figures["waiting_gangs"], figures["started"]) == (4, 1, 1)
    assert figures["waited_seconds"]["max"] == pytest.approx(10 * MINUTE, abs=1)
    assert named(outcome)["new"].first_started == pytest.approx(20 * MINUTE, abs=2)
    assert outcome.shares["cpu"].used == pytest.approx(1.0)


async def test_pods_without_an_expected_end_hold_their_nodes_for_ever() -> None:
    outcome = await replayed_on(await snapshot_of(gang("running").of(4)), job("new", 60, 1, 10))

    assert named(outcome)["new"].first_started is None


async def test_a_redacted_snapshot_gives_the_same_figures() -> None:
    snapshot = await snapshot_of(gang("running").of(3).running_for(600), gang("waiting").of(4).running_for(60))
    jobs = (job("a", 0, 1, 10), job("b", 30, 4, 10))

    figures = [as_json(await replayed_on(each, *jobs)) for each in (snapshot, redact(snapshot))]
    assert figures[0] == figures[1]
    assert figures[0]["ended"] == 2


async def test_a_gang_placed_pod_by_pod_runs_again_when_one_of_its_pods_was_evicted() -> None:
    jobs = (job("low", 0, 4, 10), job("high", 120, 2, 10, priority=9))
    runs = named(await replayed(*jobs, mode=Mode.POD_BY_POD))

    assert runs["low"].evicted_pods == 2
    assert runs["high"].ended == pytest.approx(12 * MINUTE, abs=2)
    assert runs["low"].ended == pytest.approx(22 * MINUTE, abs=3)
