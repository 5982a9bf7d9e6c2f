"""Answers of `muster whatif` are true: the gang is then submitted to the same rules, with a random past."""

from collections import Counter

import pytest

from builders.forecast.truth import by_first_fit, by_placement
from muster.forecast.whatif import Verdict

CLUSTERS = 300
AT_ONCE = 100
"""Clusters for each test, so that each has time enough on a busy machine."""
CLUSTERS_WITH_PLACEMENT = 24
AT_ONCE_WITH_PLACEMENT = 12


@pytest.mark.parametrize("first", range(0, CLUSTERS, AT_ONCE))
async def test_answers_for_300_random_clusters_are_true(first: int) -> None:
    truth = by_first_fit()

    compared = [await truth.compare(seed) for seed in range(first, first + AT_ONCE)]

    assert [each for each in compared if not each.true] == []
    verdicts = Counter(each.said.verdict for each in compared)
    assert min(verdicts[each] for each in (Verdict.NOW, Verdict.LATER, Verdict.NEVER)) > AT_ONCE / 20
    assert sum(bool(each.said.victims) for each in compared) > AT_ONCE / 20
    assert sum(each.remedies for each in compared) > AT_ONCE / 3


@pytest.mark.parametrize("first", range(0, CLUSTERS_WITH_PLACEMENT, AT_ONCE_WITH_PLACEMENT))
async def test_answers_with_a_placement_process_are_true(first: int) -> None:
    async with by_placement() as truth:
        compared = [await truth.compare(seed) for seed in range(first, first + AT_ONCE_WITH_PLACEMENT)]

    assert [each for each in compared if not each.true] == []
    assert len({each.said.verdict for each in compared}) == 3
