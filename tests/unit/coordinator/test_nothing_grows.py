"""I11: maps and lists of the core have entries for what exists now, whatever came and went before."""

from builders.core.entries import entries
from builders.core.scenario import Scenario
from builders.gangs.facts import gang


def test_i11_edits_of_a_gang_that_is_not_tried_leave_no_entries() -> None:
    scenario = Scenario({"n": 1})
    gangs = [gang("first").of(1).with_priority(9), gang("edited").of(1)]
    scenario.add(*gangs)  # placement does not answer
    before = entries(scenario.leader)["queue._active"]
    for count in range(1000):
        scenario.change(gangs=[gangs[1].needing(1 + count % 2).gang_facts()])
        scenario.change(gangs=[gangs[1].needing(1).gang_facts()])
    assert entries(scenario.leader)["queue._active"] <= before + 100
