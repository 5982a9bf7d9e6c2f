"""Plays a scenario from its acts, and says what went wrong."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from simulation import node_actions, service_actions, user_actions
from simulation.actions import Act, draw, perform
from simulation.final_checks import finish
from simulation.world import Listener, World

KINDS_FROM = (user_actions, node_actions, service_actions)
"""Where acts are registered."""
SHORTEST, LONGEST = 40, 120
"""Acts of a scenario."""


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
    """What goes wrong in this scenario; None: nothing."""
    try:
        play(acts)
    except Exception as error:  # whatever it is, it is what the simulator is for
        return failure_of(error)
    return None


def invent(seed: int, listen: Listener | None = None) -> tuple[list[Act], Failure | None]:
    """The seed's scenario, without the acts that find nothing to do, and what goes wrong in it."""
    acts: list[Act] = []
    world = World(listen)
    length = random.Random(seed).randint(SHORTEST, LONGEST)
    try:
        for act in islice(draw(seed), 4 * length):
            before = world.standing()
            acts.append(act)
            perform(world, act)
            if world.standing() == before:
                acts.pop()
            elif len(acts) == length:
                break
        finish(world)
    except Exception as error:
        return acts, failure_of(error)
    return acts, None


def failure_of(error: Exception) -> Failure:
    """What went wrong, in one line."""
    message = str(error).split("\n", 1)[0]
    named = isinstance(error, AssertionError) and ":" in message
    return Failure(message.split(":", 1)[0] if named else type(error).__name__, message)
