"""Answers about very many gangs are built in slices, and are the same as in one piece (I12)."""

from collections.abc import Iterator

import pytest

from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core import slices
from muster.coordinator.core.report import explain
from muster.coordinator.core.slices import Slices, run_to_end

AT_ONCE = 5
GANGS = 31


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.setattr(slices, "OBJECTS", AT_ONCE)
    monkeypatch.setattr(explain, "OBJECTS", AT_ONCE)
    scenario = Scenario({"n": 2})
    scenario.add(gang("runs").of(2).created(1))
    scenario.run()
    scenario.add(*(gang(f"w{number:02}").of(3).created(900 - number) for number in range(GANGS - 1)))
    scenario.run_effects()
    return scenario


def names(ids: list[str]) -> list[str]:
    return [id_.rsplit("/", 1)[-1] for id_ in ids]


def count(answer: Slices[object]) -> int:
    """Number of slices."""
    between: Iterator[None] = answer
    return sum(1 for _ in between)


def test_all_gangs_are_listed_in_queue_order_before_those_that_run(scenario: Scenario) -> None:
    listed = run_to_end(explain.in_order(scenario.leader.cache))
    assert names(listed) == [*(f"w{number:02}" for number in reversed(range(GANGS - 1))), "runs"]
    assert count(explain.in_order(scenario.leader.cache)) >= 2 * GANGS // AT_ONCE


def test_only_gangs_of_the_namespace_are_listed(scenario: Scenario) -> None:
    assert run_to_end(explain.in_order(scenario.leader.cache, "elsewhere")) == []
    assert len(run_to_end(explain.in_order(scenario.leader.cache, "default"))) == GANGS


def test_a_gang_that_is_deleted_between_two_slices_is_left_out(scenario: Scenario) -> None:
    answer = explain.in_order(scenario.leader.cache)
    next(answer)
    scenario.delete(gang("w29").of(3))
    scenario.run_effects()
    assert "w29" not in names(run_to_end(answer))


@pytest.mark.parametrize(("name", "position", "nearest"), [("w29", 1, []), ("w00", 30, ["w01", "w02", "w03"])])
def test_the_position_in_the_queue_is_found_in_slices(
    name: str, position: int, nearest: list[str], scenario: Scenario
) -> None:
    found = scenario.leader.cache.gangs[f"test/default/{name}"]
    at, ahead = run_to_end(explain.ahead_of(scenario.leader.queue, found))
    assert (at, names(ahead)[:3]) == (position, nearest)
    assert count(explain.ahead_of(scenario.leader.queue, found)) >= (GANGS - 1) // AT_ONCE


def test_a_running_gang_has_no_position(scenario: Scenario) -> None:
    runs = scenario.leader.cache.gangs["test/default/runs"]
    assert run_to_end(explain.ahead_of(scenario.leader.queue, runs)) == (0, [])


def test_gangs_are_found_by_name_in_slices(scenario: Scenario) -> None:
    gangs = scenario.leader.cache.gangs
    assert run_to_end(explain.find(gangs, "w07")).id == "test/default/w07"
    assert count(explain.find(gangs, "w07")) >= GANGS // AT_ONCE
    with pytest.raises(explain.UnknownGang):
        run_to_end(explain.find(gangs, "none"))
