"""Runs a scenario from its actions, and describes its failure."""

import gc
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from simulation import device_actions, node_actions, service_actions, subgroup_actions, user_actions
from simulation.actions import Action, draw, perform
from simulation.final_checks import finish
from simulation.world import Listener, World

ACTION_MODULES = (user_actions, subgroup_actions, node_actions, service_actions, device_actions)
"""Modules that register actions."""
MIN_ACTIONS, MAX_ACTIONS = 40, 120
"""Acts of a scenario."""
FLOODED = 5
"""One of so many scenarios has floods."""
FLOODS = 0.03
"""Floods per action in these."""
CROWDED, FIRST_CROWDED = 1000, 103
"""One of so many scenarios has crowds of pods with requests of their own, beginning with this one: each takes twenty
times as long.
"""
CLAIMING, FIRST_CLAIMING = 4, 2
"""One of so many scenarios has devices, and gangs that claim them, beginning with this one."""
CLAIMS = 0.25
"""Actions on devices per other action in these."""


@dataclass(frozen=True)
class Failure:
    """A failure; `kind` is the invariant's name or the exception's."""

    kind: str
    message: str


def collect_rarely() -> None:
    """Collect garbage after 50,000 objects instead of 700, which takes a fifth of the time of a scenario."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def play(actions: Sequence[Action], listen: Listener | None = None) -> World:
    """Runs all actions and the final checks. Raises the failure."""
    world = World(listen)
    for action in actions:
        perform(world, action)
    finish(world)
    return world


def failure(actions: Sequence[Action]) -> Failure | None:
    """Returns the failure of this scenario; None if it passes."""
    try:
        play(actions)
    except Exception as error:  # any exception is a failure of the scenario
        return failure_of(error)
    return None


def generate(seed: int, listen: Listener | None = None) -> tuple[list[Action], Failure | None]:
    """Runs the seed's scenario. Returns its actions, without those that had no effect, and its failure."""
    actions: list[Action] = []
    world = World(listen)
    length = random.Random(seed).randint(MIN_ACTIONS, MAX_ACTIONS)
    try:
        for action in islice(_with_devices(seed), 4 * length):
            before = world.fingerprint()
            actions.append(action)
            perform(world, action)
            if world.fingerprint() == before:
                actions.pop()
            elif len(actions) == length:
                break
        finish(world)
    except Exception as error:
        return actions, failure_of(error)
    return actions, None


def _with_devices(seed: int) -> Iterator[Action]:
    """The seed's actions; in every fourth scenario gangs claim devices."""
    if seed % CLAIMING != FIRST_CLAIMING:
        yield from _with_floods(seed)
        return
    dice = random.Random(f"devices {seed}")
    yield from device_actions.beginning(dice)
    for action in _with_floods(seed):
        if dice.random() < CLAIMS:
            yield device_actions.drawn(dice)
        yield action


def _with_floods(seed: int) -> Iterator[Action]:
    """The seed's actions; in every fifth scenario a tenant floods the queue now and then, and some have
    crowds.
    """
    dice = random.Random(f"flood {seed}")
    crowds = [dice.randrange(20), 20 + dice.randrange(20)] if seed % CROWDED == FIRST_CROWDED else []
    for number, action in enumerate(draw(seed)):
        if number in crowds:
            yield Action("crowd", (dice.randrange(4),))
        if seed % FLOODED == 0 and dice.random() < FLOODS:
            yield Action("flood", (dice.randrange(4), dice.randrange(4)))
        yield action


def failure_of(error: Exception) -> Failure:
    """Describes an exception as a failure in one line."""
    message = str(error).split("\n", 1)[0]
    named = isinstance(error, AssertionError) and ":" in message
    return Failure(message.split(":", 1)[0] if named else type(error).__name__, message)
