"""Backoff between restarts of a PodGroup."""

from muster.lifecycle.pod_groups.restarter import RestartBackoff


def test_the_first_restart_is_immediate_and_later_ones_back_off() -> None:
    backoff = RestartBackoff()
    pauses = []
    now = 1000.0
    for _ in range(8):
        pause = backoff.seconds_left("a", now)
        pauses.append(pause)
        now += pause
        backoff.record("a", now)
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


def test_elapsed_time_shortens_the_backoff() -> None:
    backoff = RestartBackoff()
    backoff.record("a", 1000.0)
    assert backoff.seconds_left("a", 1004.0) == 6
    assert backoff.seconds_left("a", 1100.0) == 0


def test_ten_quiet_minutes_reset_the_backoff() -> None:
    backoff = RestartBackoff()
    for now in (1000.0, 1010.0, 1030.0):
        backoff.record("a", now)
    assert backoff.seconds_left("a", 1031.0) == 39
    assert backoff.seconds_left("a", 1630.0) == 0
    backoff.record("a", 1630.0)
    assert backoff.seconds_left("a", 1631.0) == 9


def test_backoff_is_per_group_and_dropped_with_it() -> None:
    backoff = RestartBackoff()
    backoff.record("a", 1000.0)
    assert backoff.seconds_left("b", 1000.0) == 0
    backoff.drop("a")
    assert backoff.seconds_left("a", 1000.0) == 0
