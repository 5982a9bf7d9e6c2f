"""Ends and limits of held reservations: waiting-times beyond all measure, shares of the cluster (I13)."""

from builders.core.actions import reservations
from builders.core.objects import plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Phase
from muster.coordinator.core.events import Rules
from muster.coordinator.core.machine import DEFAULTS
from muster.coordinator.core.report.explain import waits_until_unix_millis
from muster.coordinator.core.report.reasons import reason

LONGEST = DEFAULTS.max_waiting_time_seconds


def test_i13_an_endless_waiting_time_holds_the_cluster_for_an_hour() -> None:
    scenario = Scenario({"n": 8})
    scenario.add(gang("w").of(1000).non_strict(1e9))
    scenario.run()
    assert len(scenario.gang("w").seats) == 8
    assert waits_until_unix_millis(scenario.gang("w")) == int((scenario.unix + LONGEST) * 1000)
    scenario.add_pods(plain_pod("small"))
    scenario.pass_time(LONGEST - 1)
    assert scenario.bound("w") == 0 and len(scenario.gang("w").seats) == 8
    scenario.pass_time(2)
    assert scenario.gang("w").phase is Phase.TIMED_OUT
    assert scenario.claims_ended == [("hold", "timed_out")]
    assert scenario.cluster.pods["default/small"].node == "n"


def test_i13_the_waiting_time_that_is_used_is_told_on_the_object() -> None:
    scenario = Scenario({"n": 8})
    scenario.add(gang("w").of(1000).non_strict(1e9))
    scenario.run()
    warnings = [event.note for each in scenario.reports for event in each.events if event.reason == "GangDeclaration"]
    assert warnings == ["waiting-time 1000000000 s is more than the cluster allows (max-waiting-time); 3600 s is used"]
    scenario.pass_time(LONGEST + 1)
    assert any("timed out after 3600 s" in note for note in scenario.notes())


def test_i13_a_bounded_waiting_time_goes_on_after_a_failover() -> None:
    scenario = Scenario({"n": 8})
    scenario.add(gang("w").of(1000).non_strict(1e9))
    scenario.pass_time(LONGEST - 100)
    scenario.crash()
    scenario.start()
    scenario.pass_time(101)
    assert scenario.gang("w").phase is Phase.TIMED_OUT


def test_shorter_waiting_times_remain() -> None:
    scenario = Scenario({"n": 8})
    scenario.add(gang("w").of(9).non_strict(60))
    scenario.pass_time(61)
    assert scenario.gang("w").phase is Phase.TIMED_OUT
    assert not any("max-waiting-time" in note for note in scenario.notes())


def test_i13_held_reservations_take_a_share_of_the_cluster_in_all() -> None:
    scenario = Scenario({"n": 8, "m": 8}, rules=Rules(max_held_share=0.5))
    scenario.add(gang("w").of(5).and_of(10, cpu=3).non_strict())
    scenario.pass_time(5)
    held = sum(scenario.cluster.class_cpu(each.seat.class_id) for each in scenario.gang("w").seats.values())
    assert 6000 <= held <= 8000
    scenario.add(gang("x").of(20).non_strict().created(5))
    scenario.pass_time(20)
    both = [each.seat for name in "wx" for each in scenario.gang(name).seats.values()]
    assert sum(scenario.cluster.class_cpu(seat.class_id) for seat in both) <= 8000
    scenario.add(gang("strict").of(8).created(9))
    scenario.pass_time(5)
    assert scenario.bound("strict") == 8
    assert any("gangs that wait may hold 50% of the cluster" in note for note in scenario.notes())


def test_i10_the_reason_of_a_gang_at_its_share_does_not_alternate() -> None:
    scenario = Scenario({"n": 8}, rules=Rules(max_held_share=0.5))
    scenario.add_pods(plain_pod("low", cpu=1))
    scenario.run()
    scenario.add(gang("w").of(12).non_strict().with_priority(1))
    scenario.pass_time(15)
    before = len(scenario.reports)
    scenario.pass_time(14)
    assert len(scenario.reports) == before
    assert "may hold 50%" in reason(scenario.gang("w"))


def test_i13_a_gang_that_fits_starts_beyond_the_share() -> None:
    scenario = Scenario({"n": 8}, rules=Rules(max_held_share=0.25))
    waiting = gang("w").of(8).non_strict()
    scenario.change(gangs=[waiting.gang_facts()], pods=waiting.pods())
    scenario.pass_time(1)
    assert scenario.bound("w") == 8


def test_i13_a_gang_at_its_share_starts_when_the_rest_fits() -> None:
    scenario = Scenario({"n": 8}, rules=Rules(max_held_share=0.5))
    scenario.add_pods(plain_pod("short"))
    scenario.run()
    scenario.add(gang("w").of(8).non_strict())
    scenario.pass_time(5)
    assert reservations(scenario, "w") == {"w": 4}
    scenario.change(remove_pods=["default/short"])
    scenario.pass_time(30)
    assert scenario.bound("w") == 8


def test_i12_a_gang_at_its_share_is_tried_with_pauses() -> None:
    scenario = Scenario({"n": 8}, rules=Rules(max_held_share=0.5))
    scenario.add(gang("w").of(9).non_strict())
    scenario.pass_time(100)
    assert len(scenario.solves) < 40
