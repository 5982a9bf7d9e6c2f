"""Prints a scenario: actions, events of the coordinator and its effects."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from builders.core.scenario import Scenario
from muster.coordinator.core.effects import Effect, GangChanged
from muster.coordinator.core.events import Event, Snapshot, Tick
from simulation.actions import Action, line, perform
from simulation.final_checks import finish
from simulation.world import World

MAX_CHARACTERS = 1200


def print_scenario(actions: Sequence[Action], say: Callable[[str], None]) -> None:
    """Runs the scenario and prints it up to its failure."""

    def listen(scenario: Scenario, what: Event | Effect) -> None:
        if not isinstance(what, GangChanged | Tick):
            say(f"    {scenario.now:9.2f}  {_short(what)}"[:MAX_CHARACTERS])

    world = World(listen)
    for action in actions:
        say(line(action))
        perform(world, action)
    say("the end")
    finish(world)


def _short(value: Any) -> str:
    """Formats structs without fields that have their defaults."""
    if isinstance(value, Snapshot):
        return "Snapshot(...)"
    if isinstance(value, Struct):
        parts = [
            f"{field.name}={_short(getattr(value, field.name))}"
            for field in fields(value)
            if getattr(value, field.name) != field.default
        ]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_short(each) for each in value)}]"
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else repr(value)
