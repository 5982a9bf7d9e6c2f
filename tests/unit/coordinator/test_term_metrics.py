"""Metrics of a term agree with its gangs: phases, pending pods, victims."""

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from builders.core.actions import end
from builders.core.objects import node
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from builders.telemetry.metrics import Figures
from muster.coordinator.core.effects import Effect, Phase, PhaseChanged
from muster.coordinator.core.events import Event
from muster.coordinator.core.machine import Machine
from muster.coordinator.term_metrics import TermMetrics


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    TermMetrics.end()


class Figured(Scenario):
    """A scenario that is counted, as a term counts."""

    figures: TermMetrics
    counted: Machine | None = None

    def tell(self, *events: Event) -> None:
        if self.machine is not self.counted and self.machine is not None:
            self.counted = self.machine
            self.figures = TermMetrics(self.machine, lambda _gang: "")
            self.figures.begin(lambda: 0)
            self.before = Figures.here()
        self.effects: list[Effect] = []
        super().tell(*events)
        self.figures.stepped(events, self.effects)

    def take(self, effect: Effect) -> None:
        self.effects.append(effect)
        if isinstance(effect, PhaseChanged):
            self.figures.phase_changed(effect, self.leader.cache.gangs.get(effect.gang))
        super().take(effect)

    def more(self, name: str, **labels: str) -> float:
        """How much a figure rose since the term began."""
        return Figures.here()(name, **labels) - self.before(name, **labels)

    def told_phases(self) -> Mapping[str, float]:
        """Numbers above zero by phase."""
        reported = {phase.name: Figures.here()("muster_gangs", phase=phase.name.lower()) for phase in Phase}
        return {phase: count for phase, count in reported.items() if count}

    def pending(self) -> Mapping[str, float]:
        queues = ("active", "backoff", "unschedulable", "gated")
        reported = {queue: Figures.here()("scheduler_pending_pods", queue=queue) for queue in queues}
        return {queue: count for queue, count in reported.items() if count}

    def true_phases(self) -> Mapping[str, float]:
        return Counter(gang.phase.name for gang in self.leader.cache.gangs.values())


def test_gangs_are_counted_by_the_phase_that_they_are_in() -> None:
    scenario = Figured({"n": 8})
    scenario.add(gang("small").of(3), gang("large").of(9), gang("short").of(2).needing(3))
    scenario.run()

    assert scenario.told_phases() == scenario.true_phases() == {"SATISFIED": 1, "QUEUED": 1, "GATHERING": 1}
    assert scenario.pending() == {"unschedulable": 9, "gated": 2}

    scenario.change(nodes=[node("m", 4)])
    scenario.run()
    assert scenario.told_phases() == scenario.true_phases() == {"SATISFIED": 2, "GATHERING": 1}
    assert scenario.pending() == {"gated": 2}
    assert scenario.more("scheduler_pod_scheduling_sli_duration_seconds_count") == 2
    assert scenario.more("muster_gang_start_duration_seconds_count") == 2
    assert scenario.more("muster_gang_phase_duration_seconds_count", phase="binding") == 2

    scenario.delete(gang("small").of(3))
    scenario.finish_deletions()
    scenario.run()
    assert scenario.told_phases() == scenario.true_phases() == {"SATISFIED": 1, "GATHERING": 1}


def test_the_next_term_counts_from_zero() -> None:
    scenario = Figured({"n": 8})
    scenario.add(gang("a").of(3), gang("b").of(9))
    scenario.run()
    TermMetrics.end()
    assert not scenario.told_phases()

    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.told_phases() == scenario.true_phases() == {"SATISFIED": 1, "QUEUED": 1}
    assert scenario.more("scheduler_pod_scheduling_sli_duration_seconds_count") == 0, "what ran does not start again"


def test_a_victim_counts_once_for_its_preemptor() -> None:
    scenario = Figured({"n": 4})
    scenario.add(gang("v").of(4))
    scenario.run()
    scenario.add(gang("p").of(4).with_priority(10).created(20))
    end(scenario)

    assert scenario.bound("p") == 4
    assert scenario.more("scheduler_preemption_victims_count") == 1
    assert scenario.more("scheduler_preemption_victims_sum") == 4


def test_the_lag_of_the_view_is_measured_for_pods_that_were_said_to_be_bound() -> None:
    scenario = Figured({"n": 8})
    scenario.add(gang("a").of(3))
    scenario.run()
    assert scenario.more("muster_watch_lag_seconds_count") >= 1
