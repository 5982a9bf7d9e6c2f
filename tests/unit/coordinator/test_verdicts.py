"""What was concluded about a pending gang stands side by side in its reason, which changes only if that does (I10)."""

from msgspec.structs import replace

from builders.core.objects import plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.backfill.reservation import NO_COMPLETIONS_HELP
from muster.coordinator.core.gang.verdicts import Verdict, Verdicts
from muster.coordinator.core.preemption.preemption import NO_VICTIMS_HELP
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import PodPhase


def starving(low_priority: int = 0) -> Scenario:
    """Neither preemption nor waiting helps gang "a": another scheduler's pod has a part of the node."""
    scenario = Scenario({"n": 8})
    scenario.intrude(plain_pod("foreign", cpu=2), "n")
    scenario.add(gang("low").of(2).with_priority(low_priority))
    scenario.run()
    scenario.add(gang("a").of(8).with_priority(10))
    scenario.pass_time(60)
    assert NO_COMPLETIONS_HELP in reason(scenario.gang("a"))
    return scenario


def retry(scenario: Scenario, seconds: float = 40) -> None:
    """A pod comes and goes, which lets the gang be tried again."""
    scenario.intrude(plain_pod("passing"), "n")
    scenario.change(remove_pods=["default/passing"])
    scenario.pass_time(seconds)


def test_i10_the_reason_of_a_starving_gang_does_not_alternate() -> None:
    scenario = starving()
    assert reason(scenario.gang("a")).endswith(f"; {NO_VICTIMS_HELP}; {NO_COMPLETIONS_HELP}")
    before, solves = len(scenario.reports), len(scenario.solves)
    for _ in range(5):
        retry(scenario)
    asked = [solve.potential_victims[0].id for solve in scenario.solves[solves:] if solve.potential_victims]
    assert asked == ["test/default/low", "end/0"] * 5
    assert len(scenario.reports) == before


def test_i10_verdicts_end_with_the_explanation_that_they_belong_to() -> None:
    scenario = starving()
    scenario.intrude(plain_pod("stays"), "n")
    retry(scenario, 5)
    assert reason(scenario.gang("a")).endswith(f"3 of 8 members fit; {NO_VICTIMS_HELP}")


def test_i10_a_reservation_ends_the_verdict_that_waiting_would_not_help() -> None:
    """The pod of the other scheduler is replaced by one of ours, which is expected to end."""
    scenario = starving(low_priority=20)
    scenario.lagging = True
    scenario.change(remove_pods=["default/foreign"])
    scenario.change(pods=[replace(plain_pod("ours", cpu=2, priority=20), node="n", phase=PodPhase.RUNNING)])
    scenario.lagging = False
    scenario.deliver()
    scenario.pass_time(40)
    (nomination,) = scenario.leader.cache.nominations.values()
    assert nomination.backfill
    assert reason(scenario.gang("a")).endswith("4 of 8 members fit")


def test_verdicts_have_one_order_however_they_are_found() -> None:
    verdicts = Verdicts()
    for kind in reversed(Verdict):
        verdicts.conclude(kind, f"{kind.name} at first")
    verdicts.conclude(Verdict.PREEMPTION, "")
    verdicts.conclude(Verdict.PREEMPTION, "PREEMPTION again")
    assert list(verdicts.sentences.values()) == ["HOLD_LIMIT at first", "PREEMPTION again", "RESERVATION at first"]
    assert verdicts[Verdict.PREEMPTION] == "PREEMPTION again"
