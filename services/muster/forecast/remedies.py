"""Finds single changes with which gangs would start now: each was played."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from muster.forecast.alternatives import (
    Alternative,
    alternatives,
    changed_by,
    smaller,
    with_more_nodes,
    with_reached_minimum,
)
from muster.forecast.snapshot import Snapshot
from muster.forecast.whatif import Forecaster, Question
from muster.gangs.facts import Batch

MAX_MORE_NODES: Final = 100
"""Nodes that are proposed, at most."""


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
    if not any(each.before.nodes for each in found) and cluster.nodes:
        found += await _more_nodes(question, cluster, helps)
    if len(question.added.gangs) == 1 and with_reached_minimum(question.added) not in found:
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


async def _more_nodes(
    question: Question, cluster: Batch, helps: Callable[[Alternative], Awaitable[bool]]
) -> list[Alternative]:
    """The smallest number of nodes more, of the most frequent kind, that helps; at most one for each member."""
    fewest, most = 1, min(len(question.added.pods), MAX_MORE_NODES)
    least = with_more_nodes(question.added, cluster, most)
    if most <= fewest or not await helps(least):
        return []
    while fewest + 1 < most:
        middle = (fewest + most) // 2
        each = with_more_nodes(question.added, cluster, middle)
        if await helps(each):
            most, least = middle, each
        else:
            fewest = middle
    return [least]


def changed(question: Question, alternative: Alternative) -> Question:
    """The question with the alternative."""
    return question._replace(added=alternative.question, before=(*question.before, alternative.before))
