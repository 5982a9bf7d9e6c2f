"""Synthetic traces: equal for equal seeds, and like the published figures."""

import statistics

from muster.forecast.synthetic import DAY_SECONDS, GPU, MEDIAN_SECONDS, Workload, generate

WEEK = Workload(days=7, gpus=1000, seed=1)
GANGS = generate(WEEK)


def gpus(members: int, requests: tuple[tuple[str, int], ...]) -> int:
    return members * dict(requests)[GPU]


def test_equal_seeds_give_equal_traces() -> None:
    assert generate(WEEK) == GANGS
    assert generate(Workload(days=7, gpus=1000, seed=2)) != GANGS


def test_the_load_is_what_was_asked_for() -> None:
    submitted = sum(gpus(each.members, each.requests) * each.duration_seconds for each in GANGS)

    assert 0.9 <= submitted / (WEEK.gpus * WEEK.days * DAY_SECONDS) < 1.0


def test_sizes_and_durations_are_those_of_the_publication() -> None:
    sizes = [gpus(each.members, each.requests) for each in GANGS]

    assert sum(size == 1 for size in sizes) > len(sizes) / 2
    assert 3.0 < statistics.mean(sizes) < 4.5
    assert 0.5 * MEDIAN_SECONDS < statistics.median(each.duration_seconds for each in GANGS) < 2 * MEDIAN_SECONDS


def test_submissions_are_in_order_and_within_the_days() -> None:
    times = [each.at_seconds for each in GANGS]

    assert times == sorted(times)
    assert times[0] >= 0 and times[-1] <= WEEK.days * DAY_SECONDS


def test_no_job_is_larger_than_the_cluster() -> None:
    small = generate(Workload(days=2, gpus=16))

    assert max(gpus(each.members, each.requests) for each in small) <= 16
