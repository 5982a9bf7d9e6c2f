"""What `muster whatif` says is what happens when the gang is then submitted: to the same rules, with a random past."""

from collections import Counter

from builders.forecast.truth import by_first_fit, by_placement
from muster.forecast.whatif import Verdict

CLUSTERS = 300
CLUSTERS_WITH_PLACEMENT = 25


async def test_answers_for_300_random_clusters_are_true() -> None:
    truth = by_first_fit()

    compared = [await truth.compare(seed) for seed in range(CLUSTERS)]

    assert [each for each in compared if not each.true] == []
    verdicts = Counter(each.said.verdict for each in compared)
    assert min(verdicts[each] for each in (Verdict.NOW, Verdict.LATER, Verdict.NEVER)) > CLUSTERS / 20
    assert sum(bool(each.said.victims) for each in compared) > CLUSTERS / 20
    assert sum(each.remedies for each in compared) > CLUSTERS / 3


async def test_answers_with_a_placement_process_are_true() -> None:
    async with by_placement() as truth:
        compared = [await truth.compare(seed) for seed in range(CLUSTERS_WITH_PLACEMENT)]

    assert [each for each in compared if not each.true] == []
    assert len({each.said.verdict for each in compared}) == 3
