"""Victim selection on instances so small that every selection can be tried."""

from hypothesis import given, settings

from builders.placement.preemption_oracle import Instance, check, confined_instances, instances
from muster.placement.preemption.spare_pods import SparePods
from muster.placement.preemption.whole_gangs import GangUsage, few_gangs


@settings(max_examples=100, deadline=None)
@given(instances())
def test_victims_for_equal_members_are_minimal(instance: Instance) -> None:
    check(instance)


@settings(max_examples=100, deadline=None)
@given(instances(max_roles=3))
def test_victims_for_mixed_members_are_minimal(instance: Instance) -> None:
    check(instance)


@settings(max_examples=100, deadline=None)
@given(instances(max_roles=2))
def test_greedily_selected_gangs_suffice(instance: Instance) -> None:
    """The heuristic for large instances, on small ones."""
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
def test_p38_victims_under_hard_constraints_are_minimal(instance: Instance) -> None:
    check(instance)


@settings(max_examples=60, deadline=None)
@given(confined_instances(max_roles=2))
def test_p38_victims_for_mixed_members_are_minimal(instance: Instance) -> None:
    check(instance)
