"""Who goes, on instances so small that every way to let pods go can be tried."""

from hypothesis import given, settings

from builders.placement.preemption_oracle import Instance, check, confined_instances, instances
from muster.placement.preemption.holds import Holds
from muster.placement.preemption.spare_pods import Spare
from muster.placement.preemption.whole_gangs import greedy_gangs


@settings(max_examples=100, deadline=None)
@given(instances())
def test_removal_for_equal_members_is_the_least_there_is(instance: Instance) -> None:
    check(instance)


@settings(max_examples=100, deadline=None)
@given(instances(most_roles=3))
def test_removal_for_mixed_members_is_the_least_there_is(instance: Instance) -> None:
    check(instance)


@settings(max_examples=100, deadline=None)
@given(instances(most_roles=2))
def test_gangs_chosen_by_what_helps_most_suffice(instance: Instance) -> None:
    """What large instances are left to, on small ones."""
    trial = instance.trial()
    candidates = trial.candidates
    spare = Spare(trial, candidates.count)
    holds = Holds(trial, spare.limited, spare.first, candidates.count - spare.first)
    removed = greedy_gangs(holds, spare.first_beside) if spare.limited else spare.first_beside(())
    assert (removed is not None) == trial.fits(candidates.count)
    if removed is not None:
        gone: dict[tuple[str, str], int] = {}
        for of_gang in candidates.answer(removed):
            for pods in of_gang.pods:
                gone[pods.node, pods.class_id] = gone.get((pods.node, pods.class_id), 0) + pods.count
        assert instance.fits(gone)


@settings(max_examples=150, deadline=None)
@given(confined_instances())
def test_p38_hard_constraints_decide_who_goes_and_it_is_the_least_there_is(instance: Instance) -> None:
    check(instance)


@settings(max_examples=60, deadline=None)
@given(confined_instances(most_roles=2))
def test_p38_likewise_for_mixed_members(instance: Instance) -> None:
    check(instance)
