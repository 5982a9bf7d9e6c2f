"""A group that breaks again and again is restarted ever less often."""

from muster.lifecycle.pod_groups.pace import RestartPace


def test_the_first_restart_is_at_once_and_later_ones_wait_ever_longer() -> None:
    pace = RestartPace()
    pauses = []
    now = 1000.0
    for _ in range(8):
        pause = pace.seconds_left("a", now)
        pauses.append(pause)
        now += pause
        pace.note("a", now)
    assert pauses == [0, 10, 20, 40, 80, 160, 300, 300]


def test_the_time_that_went_by_counts() -> None:
    pace = RestartPace()
    pace.note("a", 1000.0)
    assert pace.seconds_left("a", 1004.0) == 6
    assert pace.seconds_left("a", 1100.0) == 0


def test_a_group_that_was_quiet_for_long_begins_anew() -> None:
    pace = RestartPace()
    for now in (1000.0, 1010.0, 1030.0):
        pace.note("a", now)
    assert pace.seconds_left("a", 1031.0) == 39
    assert pace.seconds_left("a", 1630.0) == 0
    pace.note("a", 1630.0)
    assert pace.seconds_left("a", 1631.0) == 9


def test_groups_do_not_wait_for_each_other_nor_for_one_that_is_gone() -> None:
    pace = RestartPace()
    pace.note("a", 1000.0)
    assert pace.seconds_left("b", 1000.0) == 0
    pace.forget("a")
    assert pace.seconds_left("a", 1000.0) == 0
