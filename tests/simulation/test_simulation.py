"""A thousand random scenarios pass; failures are found, reproducible and shrunk."""

import subprocess
import sys
from pathlib import Path

import pytest

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.effects import Effect
from muster.coordinator.core.events import Event
from simulation.actions import Action, BadLine, read, text
from simulation.runner import failure, generate, play
from simulation.shrink import shrink

RUN = Path(__file__).with_name("run.py")
SEEDS = 1000


@pytest.mark.timeout(600)
def test_i1_to_i13_hold_in_a_thousand_scenarios() -> None:
    run = subprocess.run([sys.executable, RUN, f"--seeds={SEEDS}"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_seed_is_always_the_same_scenario() -> None:
    def generated(seed: int) -> tuple[list[Action], list[str]]:
        heard: list[str] = []
        actions, found = generate(seed, lambda _scenario, what: heard.append(repr(what)))
        assert found is None
        return actions, heard

    for seed in range(20):
        assert generated(seed) == generated(seed)


def test_a_parsed_scenario_runs_identically() -> None:
    heard: dict[str, list[Event | Effect]] = {"generated": [], "read": []}
    actions, _ = generate(7, lambda _scenario, what: heard["generated"].append(what))
    assert read(text(actions).strip('"')) == actions
    play(read(text(actions).strip('"')), lambda _scenario, what: heard["read"].append(what))
    assert heard["generated"] == heard["read"]


@pytest.mark.parametrize("line", ["fly", "create colour=3", "create slot=-1", "run now"])
def test_an_unknown_action_is_rejected_by_name(line: str) -> None:
    with pytest.raises(BadLine, match=line.split()[0]):
        read(line)


def test_a_planted_bug_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "release", lambda _ledger, _uids: False)
    actions = next(actions for actions, found in map(generate, range(1000)) if found is not None and found.kind == "I5")
    shortest = shrink(actions)
    found = failure(shortest)
    assert found is not None
    assert found.kind == "I5"
    assert len(shortest) <= 5, text(shortest)
    assert len(shortest) < len(actions)


def test_a_passing_scenario_is_not_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(read("create\nrun"))
