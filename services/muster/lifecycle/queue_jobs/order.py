"""In which order pods of several QueueJobs are made, so that a quota that is short hits the lowest first. Pure.

First every job, the highest priority first, has what it needs to run; then the others, one job after the other, get one
more each until all are made. So no two jobs have half of what they need each, which would let neither run.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from msgspec import Struct

from muster.lifecycle.queue_jobs.job import Job
from muster.lifecycle.queue_jobs.plan import Slot


class Demand(Struct, frozen=True):
    """The pods that a job lacks, the first first."""

    job: Job
    missing: tuple[Slot, ...]


def in_order(demands: Sequence[Demand]) -> Iterator[tuple[Job, Slot]]:
    """Pods to be made, the first first."""
    queue = sorted(demands, key=lambda each: rank(each.job))
    for demand in queue:
        yield from ((demand.job, slot) for slot in demand.missing if slot.needed)
    others = [[(demand.job, slot) for slot in demand.missing if not slot.needed] for demand in queue]
    for turn in zip_longest(*others):
        yield from (each for each in turn if each is not None)


def rank(job: Job) -> tuple[int, str, str]:
    """Jobs that stand before have the smaller one: priority, age, name."""
    return -job.priority, job.created, job.name
