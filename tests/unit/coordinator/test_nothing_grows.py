"""I11: maps and lists of the core have entries for what exists now, whatever came and went before."""

from msgspec.structs import replace

from builders.core.entries import entries
from builders.core.objects import racks
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.gangs.facts import ObjectReference, Problem, Severity

CONFIG_MAP = ObjectReference("v1", "ConfigMap", "muster", "racks", "uid-1")


def test_i11_edits_of_a_gang_that_is_not_tried_leave_no_entries() -> None:
    scenario = Scenario({"n": 1})
    gangs = [gang("first").of(1).with_priority(9), gang("edited").of(1)]
    scenario.add(*gangs)  # placement does not answer
    before = entries(scenario.leader)
    for count in range(1000):
        scenario.change(gangs=[gangs[1].needing(1 + count % 2).gang_facts()])
        scenario.change(gangs=[gangs[1].needing(1).gang_facts()])
    assert (entries(scenario.leader) - before).total() <= 100


def test_i11_topology_trees_that_come_and_go_leave_no_entries() -> None:
    scenario = Scenario({"n": 1})
    before = entries(scenario.leader)
    for number in range(20):
        problem = Problem(Severity.WARNING, "node x does not exist")
        tree = replace(racks(r0="n"), name=f"t{number}", default=False, definition=CONFIG_MAP, problems=(problem,))
        scenario.change(trees=[tree])
        scenario.pass_time(5)
        scenario.change(remove_trees=[tree.name])
    scenario.pass_time(60)
    assert scenario.reports
    assert entries(scenario.leader) <= before
