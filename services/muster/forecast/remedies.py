"""Finds single changes with which gangs would start now: each was played."""

import time
from collections.abc import Callable, Mapping

from muster.forecast.alternatives import Alternative, alternatives, changed_by, smaller
from muster.forecast.snapshot import Snapshot
from muster.forecast.whatif import Forecaster, Question


async def remedies(
    forecaster: Forecaster,
    present: Snapshot,
    question: Question,
    priorities: Mapping[str, int],
    limit_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> list[Alternative]:
    """Those that were found in time. `priorities`: values of the priority classes, by name."""
    until = clock() + limit_seconds
    cluster = changed_by(present.batch, question.before)

    async def helps(each: Alternative) -> bool:
        left = until - clock()
        return left > 0 and await forecaster.starts_now(present, changed(question, each), left)

    found = [each for each in alternatives(question.added, cluster, priorities) if await helps(each)]
    if len(question.added.gangs) == 1:
        least, most = None, len(question.added.pods)
        fewest = 0
        while fewest + 1 < most:
            middle = (fewest + most) // 2
            each = Alternative(f"it had {middle} members", smaller(question.added, middle))
            if await helps(each):
                fewest, least = middle, each
            else:
                most = middle
        found += [least] if least is not None else []
    return found


def changed(question: Question, alternative: Alternative) -> Question:
    """The question with the alternative."""
    return question._replace(added=alternative.question, before=(*question.before, alternative.before))
