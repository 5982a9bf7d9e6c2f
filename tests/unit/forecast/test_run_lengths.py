"""How long pods run is learnt from earlier pods of the same owner."""

from msgspec.structs import replace

from builders.core.objects import plain_pod
from muster.forecast.run_lengths import MAX_OWNERS, Known, RunLengths, has_ended_by_itself
from muster.gangs.facts import PodFacts, PodPhase

NOW = 1_700_000_000.0


def pod(gang: str = "etl-1", *, declared: float = 0.0, ran: float = 0.0, cpu: int = 1) -> PodFacts:
    """A pod of a gang, which runs if it has run."""
    made = replace(plain_pod(f"{gang}-0", cpu), gang=f"native/default/{gang}", expected_seconds=declared)
    if not ran:
        return made
    return replace(made, node="a", phase=PodPhase.RUNNING, started_seconds=int(NOW - ran))


def learnt(*seconds: float, gang: str = "etl") -> RunLengths:
    lengths = RunLengths()
    for number, each in enumerate(seconds):
        lengths.ended(pod(f"{gang}-{number}", ran=each), NOW)
    return lengths


def test_a_pod_without_a_past_runs_as_long_as_it_declares() -> None:
    assert RunLengths().of(pod(declared=60), 0.5, NOW) == (60, Known.DECLARED)


def test_unknown_is_unknown() -> None:
    assert RunLengths().of(pod(), 0.5, NOW) == (0, Known.UNKNOWN)
    assert learnt(10, 20).of(pod("etl-9"), 0.5, NOW) == (0, Known.UNKNOWN)  # too few


def test_quantiles_of_the_series_are_learnt() -> None:
    lengths = learnt(*range(100, 200, 10))

    assert lengths.of(pod("etl-99"), 0.5, NOW) == (150, Known.LEARNT)
    assert lengths.of(pod("etl-99"), 0.9, NOW) == (190, Known.LEARNT)


def test_other_series_of_the_namespace_and_class_count_if_a_series_has_no_past() -> None:
    lengths = learnt(100, 110, 120)

    assert lengths.of(pod("train-1"), 0.5, NOW) == (110, Known.LEARNT)
    assert lengths.of(pod("train-1", cpu=2), 0.5, NOW) == (0, Known.UNKNOWN)


def test_a_pod_that_runs_is_compared_with_those_that_ran_longer() -> None:
    lengths = learnt(100, 110, 300, 400)

    assert lengths.of(pod("etl-99", ran=200), 0.5, NOW) == (400, Known.LEARNT)
    assert lengths.of(pod("etl-99", ran=500), 0.5, NOW) == (0, Known.UNKNOWN)


def test_no_pod_runs_longer_than_it_declares() -> None:
    lengths = learnt(100, 110, 120)

    assert lengths.of(pod("etl-99", declared=50), 0.5, NOW).seconds == 50
    assert lengths.of(pod("etl-99", declared=1000), 0.5, NOW).seconds == 110


def test_a_declaration_that_was_overrun_is_not_believed() -> None:
    assert RunLengths().of(pod(declared=60, ran=600), 0.5, NOW) == (0, Known.UNKNOWN)


def test_owners_are_bounded_in_number() -> None:
    lengths = RunLengths()
    for number in range(MAX_OWNERS):
        lengths.ended(replace(pod(ran=10), namespace=f"ns-{number}"), NOW)

    assert len(lengths) == MAX_OWNERS


def test_pods_that_were_evicted_or_failed_teach_nothing() -> None:
    running = pod(ran=10)

    assert has_ended_by_itself(running, replace(running, phase=PodPhase.SUCCEEDED))
    assert not has_ended_by_itself(running, replace(running, phase=PodPhase.FAILED))
    assert not has_ended_by_itself(replace(running, deleting=True), replace(running, phase=PodPhase.SUCCEEDED))
    assert not has_ended_by_itself(running, None)
