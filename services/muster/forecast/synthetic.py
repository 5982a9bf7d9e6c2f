"""Synthetic traces after published figures of GPU clusters.

From the Helios traces, Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
Datacenters", SC '21 (arXiv:2109.01313): GPU jobs last 206 s in the median and 6,652 s on average; more than half of
them have one GPU, 3.72 on average, always powers of two; those with 8 and more are less than a tenth and use most of
the GPU time; twice as many jobs are submitted at noon as at night. A lognormal distribution has that median and average
if the deviation of its logarithm is sqrt(2 ln(6652 / 206)) = 2.64; durations are cut at a week.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from muster.forecast.submissions import Submission, parse_requests

DAY_SECONDS: Final = 86_400.0
MEDIAN_SECONDS: Final = 206.0
MEAN_SECONDS: Final = 6652.0
_SIGMA: Final = math.sqrt(2 * math.log(MEAN_SECONDS / MEDIAN_SECONDS))
_SHORTEST_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 7 * DAY_SECONDS
_SHARES: Final = ((1, 0.62), (2, 0.12), (4, 0.14), (8, 0.07), (16, 0.025), (32, 0.015), (64, 0.007), (128, 0.003))
"""GPUs of a job, and the share of jobs that have as many: 3.7 on average."""
_GPUS_PER_NODE: Final = 8
_DAILY_SWING: Final = 1 / 3
_LARGER_LAST_LONGER: Final = 0.25
"""Median and average grow with this power of the number of GPUs."""
GPU: Final = "nvidia.com/gpu"


@dataclass(frozen=True)
class Workload:
    """What to generate. `load`: GPU time that is submitted, as a share of what `gpus` have while jobs are submitted."""

    days: float
    gpus: int
    load: float = 0.9
    seed: int = 0
    urgent_share: float = 0.05
    """Share of jobs with priority 10; the others have 0."""
    packed_share: float = 0.5
    """Share of jobs of several nodes that must be in one rack."""


def generate(workload: Workload) -> list[Submission]:
    """The submissions of a workload, the same for the same seed."""
    random = Random(workload.seed)  # noqa: S311 (the same in every run)
    return list(_submissions(workload, random))


def _submissions(workload: Workload, random: Random) -> Iterator[Submission]:
    end = workload.days * DAY_SECONDS
    wanted = workload.load * workload.gpus * end
    jobs = []
    while wanted > 0:
        gpus = _gpus(random, workload.gpus)
        duration = _duration(random, gpus)
        jobs.append((gpus, duration))
        wanted -= gpus * duration
    times = sorted(_time(random, end) for _ in jobs)
    for number, (at, (gpus, duration)) in enumerate(zip(times, jobs, strict=True)):
        members = max(1, gpus // _GPUS_PER_NODE)
        each = min(gpus, _GPUS_PER_NODE)
        yield Submission(
            at_seconds=at,
            namespace=f"team-{number % 20}",
            name=f"job-{number}",
            members=members,
            requests=parse_requests(f"cpu={10 * each},{GPU}={each},memory={100 * each}Gi"),
            duration_seconds=duration,
            priority=10 if random.random() < workload.urgent_share else 0,
            topology="rack: soft pack" if members > 1 and random.random() < workload.packed_share else "",
        )


def _gpus(random: Random, most: int) -> int:
    sizes = [(gpus, share) for gpus, share in _SHARES if gpus <= most]
    return random.choices([gpus for gpus, _ in sizes], [share for _, share in sizes])[0]


def _duration(random: Random, gpus: int) -> float:
    scale = gpus**_LARGER_LAST_LONGER / _MEAN_SCALE
    seconds = scale * random.lognormvariate(math.log(MEDIAN_SECONDS), _SIGMA)
    return float(round(min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, seconds))))


_MEAN_SCALE: Final = sum(share * gpus**_LARGER_LAST_LONGER for gpus, share in _SHARES)


def _time(random: Random, end: float) -> float:
    """A time between 0 and `end`, with a daily maximum at noon."""
    while True:
        at = random.random() * end
        height = 1 - _DAILY_SWING * math.cos(2 * math.pi * at / DAY_SECONDS)
        if random.random() * (1 + _DAILY_SWING) <= height:
            return at
