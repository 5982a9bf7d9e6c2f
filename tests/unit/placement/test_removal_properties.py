"""Who goes, on instances so small that every way to let pods go can be tried."""

from hypothesis import given, settings

from builders.placement.preemption_oracle import Instance, check, confined_instances, instances
from muster.placement.preemption.spare_pods import SparePods
from muster.placement.preemption.whole_gangs import GangUsage, few_gangs


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
    dry_run = instance.dry_run()
    table = dry_run.table
    spare_pods = SparePods(dry_run, table.count)
    usage = GangUsage(dry_run, spare_pods.limited, spare_pods.first, table.count - spare_pods.first)
    victims = few_gangs(usage, spare_pods.select_first) if spare_pods.limited else spare_pods.select_first(())
    assert (victims is not None) == dry_run.fits(table.count)
    if victims is not None:
        evicted: dict[tuple[str, str], int] = {}
        for gang in table.victim_gangs(victims):
            for pods in gang.pods:
                evicted[pods.node, pods.class_id] = evicted.get((pods.node, pods.class_id), 0) + pods.count
        assert instance.fits(evicted)


@settings(max_examples=150, deadline=None)
@given(confined_instances())
def test_p38_hard_constraints_decide_who_goes_and_it_is_the_least_there_is(instance: Instance) -> None:
    check(instance)


@settings(max_examples=60, deadline=None)
@given(confined_instances(most_roles=2))
def test_p38_likewise_for_mixed_members(instance: Instance) -> None:
    check(instance)
