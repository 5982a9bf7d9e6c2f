"""Replays: gangs start, wait, are preempted and end as the coordinator's rules say, in virtual time."""

import pytest

from builders.forecast.solver import FirstFit
from muster.coordinator.core.events import Rules
from muster.forecast.replay import Mode, Outcome, Replay, Run, uniform_nodes
from muster.forecast.replay_report import as_json
from muster.forecast.submissions import Submission, parse_requests

MINUTE = 60.0
NODE = (("cpu", 4000), ("pods", 110))


def job(name: str, at: float, members: int, minutes: float, *, priority: int = 0, cpu: int = 1) -> Submission:
    return Submission(at, "default", name, members, parse_requests(f"cpu={cpu}"), minutes * MINUTE, priority)


async def replayed(*jobs: Submission, nodes: int = 1, mode: Mode = Mode.MUSTER, rules: Rules | None = None) -> Outcome:
    replay = Replay(*uniform_nodes(nodes, NODE, 0), jobs, rules=rules or Rules(), mode=mode)
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
