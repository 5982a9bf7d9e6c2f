"""Plays a story from its acts, and says what went wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulation import nodes, services, users
from simulation.acts import Act, perform
from simulation.ending import finish
from simulation.world import Listener, World

KINDS_FROM = (users, nodes, services)
"""Where acts are registered."""


@dataclass(frozen=True)
class Failure:
    """What went wrong; `kind` is the invariant's name, or the error's."""

    kind: str
    message: str


def play(acts: Sequence[Act], listen: Listener | None = None) -> World:
    """From the beginning to the end. Raises what goes wrong."""
    world = World(listen)
    for act in acts:
        perform(world, act)
    finish(world)
    return world


def failure(acts: Sequence[Act]) -> Failure | None:
    """What goes wrong in this story; None: nothing."""
    try:
        play(acts)
    except Exception as error:  # whatever it is, it is what the simulator is for
        message = str(error).split("\n", 1)[0]
        named = isinstance(error, AssertionError) and ":" in message
        return Failure(message.split(":", 1)[0] if named else type(error).__name__, message)
    return None
