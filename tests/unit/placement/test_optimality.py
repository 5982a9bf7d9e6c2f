"""The solver against an enumeration of all placements, on random small groups; `make bench-quality` tests many more."""

from dataclasses import replace

import pytest

from bench.quality import measure
from builders.placement.large_instances import dynamic_programme_cost, random_larger_case
from builders.placement.optimum import Case, cost_of, counted_in_part, most_in_part
from builders.placement.small_instances import KINDS, Kind, answer_to, random_case
from muster.gangs.solve import SolveGroup
from muster.placement.solve.instance import NotPlaced, PartiallyPlaced, Placed


@pytest.mark.parametrize("kind", KINDS)
def test_small_groups_are_placed_optimally_or_proved_infeasible(kind: Kind) -> None:
    quality = measure(kind, 150, first=100_000)
    assert quality.found == []
    assert quality.counts["placed"] == quality.counts["optimal"] == quality.counts["feasible"] > 50
    assert quality.counts["proved"] == quality.counts["infeasible"] > 10


@pytest.mark.parametrize("kind", KINDS)
def test_partial_placements_are_maximal_and_can_be_completed(kind: Kind) -> None:
    partly = 0
    for number in range(110_000, 110_100):
        case = in_part(random_case(number, kind))
        answer = answer_to(case)
        if not all(gang.constraints for gang in case.group.gangs) or isinstance(answer, Placed):
            continue
        most = most_in_part(case)
        if isinstance(answer, PartiallyPlaced):
            assert counted_in_part(case, answer) == most, number
            partly += 1
        else:
            assert most is None or not most[0], number
    assert partly > 5


def in_part(case: Case) -> Case:
    """The same group, with partial placement allowed."""
    return replace(case, group=SolveGroup(case.group.id, case.group.gangs, partial=True))


def test_larger_heterogeneous_gangs_are_nearly_optimal() -> None:
    feasible = best = 0
    for number in range(40):
        case = random_larger_case(number)
        optimum, answer = dynamic_programme_cost(case), answer_to(case)
        if optimum is None:
            assert isinstance(answer, NotPlaced)
            assert answer.proved
            continue
        assert isinstance(answer, Placed)
        cost = cost_of(case, answer)
        assert cost is not None, "a hard constraint is broken"
        assert cost >= optimum, "the best that was known is not the best"
        feasible += 1
        best += cost == optimum
    assert best / feasible > 0.9
