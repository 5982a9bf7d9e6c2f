"""Tells a scenario as lines: what happens, what the coordinator hears of it, and what it wants done."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from builders.core.scenario import Scenario
from muster.coordinator.core.effects import Effect, GangChanged
from muster.coordinator.core.events import Event, Snapshot, Tick
from simulation.actions import Act, line, perform
from simulation.final_checks import finish
from simulation.world import World

MOST_LETTERS = 1200


def narrate(acts: Sequence[Act], say: Callable[[str], None]) -> None:
    """Play the scenario and tell it, up to what goes wrong."""

    def listen(scenario: Scenario, what: Event | Effect) -> None:
        if not isinstance(what, GangChanged | Tick):
            say(f"    {scenario.now:9.2f}  {_short(what)}"[:MOST_LETTERS])

    world = World(listen)
    for act in acts:
        say(line(act))
        perform(world, act)
    say("the end")
    finish(world)


def _short(value: Any) -> str:
    """Structs without what is as it is by default."""
    if isinstance(value, Snapshot):
        return "Snapshot(...)"
    if isinstance(value, Struct):
        said = [
            f"{field.name}={_short(getattr(value, field.name))}"
            for field in fields(value)
            if getattr(value, field.name) != field.default
        ]
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_short(each) for each in value)}]"
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else repr(value)
