"""Thousands of random scenarios hold; and the simulator finds, repeats and shortens what does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.effects import Effect
from muster.coordinator.core.events import Event
from simulation.actions import Act, BadLine, read, text
from simulation.runner import failure, invent, play
from simulation.shrink import shrink

RUN = Path(__file__).with_name("run.py")
SEEDS = 2000


@pytest.mark.timeout(600)
def test_i1_to_i10_hold_in_two_thousand_scenarios() -> None:
    run = subprocess.run([sys.executable, RUN, f"--seeds={SEEDS}"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_seed_is_always_the_same_scenario() -> None:
    def told(seed: int) -> tuple[list[Act], list[str]]:
        heard: list[str] = []
        acts, found = invent(seed, lambda _scenario, what: heard.append(repr(what)))
        assert found is None
        return acts, heard

    for seed in range(20):
        assert told(seed) == told(seed)


def test_a_scenario_goes_the_same_way_when_it_is_read_back() -> None:
    heard: dict[str, list[Event | Effect]] = {"invented": [], "read": []}
    acts, _ = invent(7, lambda _scenario, what: heard["invented"].append(what))
    assert read(text(acts).strip('"')) == acts
    play(read(text(acts).strip('"')), lambda _scenario, what: heard["read"].append(what))
    assert heard["invented"] == heard["read"]


@pytest.mark.parametrize("line", ["fly", "create colour=3", "create slot=-1", "run now"])
def test_a_line_that_is_no_act_is_refused_by_name(line: str) -> None:
    with pytest.raises(BadLine, match=line.split()[0]):
        read(line)


def test_a_planted_bug_is_found_and_told_in_a_few_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "release", lambda _ledger, _uids: False)
    acts = next(acts for acts, found in map(invent, range(1000)) if found is not None and found.kind == "I5")
    shortest = shrink(acts)
    found = failure(shortest)
    assert found is not None
    assert found.kind == "I5"
    assert len(shortest) <= 5, text(shortest)
    assert len(shortest) < len(acts)


def test_a_scenario_that_holds_is_not_shortened() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(read("create\nrun"))
