"""Actions of a simulated scenario as data: drawn from a seed, written as lines, and parsed again.

    create slot=2 size=3 mode=1
    run
    crash

Numbers that are 0 are omitted. The effect of an action is a function of the world and its numbers, registered with
`@action`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from simulation.world import World


class Action(NamedTuple):
    """An action; its numbers select a variant and the objects that it affects."""

    what: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class ActionKind:
    """A kind of action: its numbers by name, each below its bound, and its weight in random draws; 0: it is not drawn,
    but inserted into some scenarios.
    """

    do: Callable[..., None]
    weight: float
    bounds: dict[str, int]


ACTION_KINDS: dict[str, ActionKind] = {}
CONTENDED = 0.5
"""Share of scenarios that begin with gangs that contend for the cluster: else few get as far as evictions."""
BEGINNINGS = (
    "create slot=0 size=3, create slot=1 size=2, run, create slot=2 size=4 priority=2",
    "create slot=0 size=3 slack=4, create slot=3 size=2, run, create_odd_member, create slot=2 priority=2 size=3",
    "create slot=0 size=5 expected=1, run, create slot=1 size=4, create_plain_pod expected=2, settle scale=4 more=3",
    "create slot=0 size=2, run, create slot=1 size=4 mode=1 waiting=2, create slot=2 size=3 mode=1 waiting=3, run",
    "create slot=0 size=5 slack=4, run, create slot=1 size=1 priority=2, run, create_members slot=0 count=3, run",
    "create slot=3 size=3 repair=2, create slot=4 size=2, run, remove_node, create_members slot=3 count=3",
    "create slot=3 size=4, run, compose group=3 needed=2, create slot=0 size=3, create slot=1 size=1, "
    "create slot=2 size=2, run, delete_gang slot=3",
    "compose group=4 needed=2 nested=1 divided=2, create slot=5 size=1, create slot=4 size=1, create slot=3 size=2",
    "edit_tree split=1, create_divided parts=1 size=1 more=2 slack=1 minimum=1, run, create slot=1 size=2 priority=2",
    "edit_tree split=1, create_divided parts=2 size=1 slack=1 minimum=2, run, create_divided slot=1 size=1 priority=2",
    "claim_volumes failing=12, create size=1 group=5, create slot=1 size=2 group=5, settle scale=2, settle scale=3",
    "claim_volumes failing=3, create size=1 group=5 mode=1, create slot=1 size=1 group=5 mode=1, settle scale=2",
    "compose group=3 needed=2, claim_volumes slot=1 failing=4, create size=1, create slot=1 size=1, "
    "create slot=2 size=1, settle scale=1, create_members slot=1 count=1",
    "create slot=1 size=2, create size=3 slack=5 missing=5, run, create slot=2 size=4, settle scale=4, "
    "create_members count=3, settle scale=3, delete_gang slot=1",
)
"""Actions until gangs contend: for lower ones, for spare pods, for pods that end, for what others hold, in repair, in
composites, for members and subgroups that others can spare, and for reserved capacity on which surplus runs; and until
gangs that start together wait for volumes.
"""
TROUBLES = ("toggle_graceful", "toggle_thief", "stick_pod", "fail_evict", "edit_budget", "depose", "crash")
"""Actions that may happen before the last of these actions."""


class BadLine(ValueError):
    """A line that does not describe an action."""

    def __init__(self, line: str, problem: str) -> None:
        super().__init__(f'"{line}" is not an action: {problem}')


def action(weight: float, **bounds: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers an action. `do(world, **numbers)` must do something sensible, or nothing, in any world."""

    def register(do: Callable[..., None]) -> Callable[..., None]:
        ACTION_KINDS[do.__name__] = ActionKind(do, weight, bounds)
        return do

    return register


def perform(world: World, what: Action) -> None:
    """Performs an action."""
    ACTION_KINDS[what.what].do(world, *what.numbers)


def draw(seed: int) -> Iterator[Action]:
    """Draws actions without end. Every seed has its own bias: some kinds are frequent, some rare, some numbers nearly
    constant. So scenarios differ more than draws from one distribution would.
    """
    dice = random.Random(seed)
    drawn = {name: kind for name, kind in ACTION_KINDS.items() if kind.weight}
    names = list(drawn)
    weights = list(accumulate(kind.weight * dice.choice((0.1, 0.5, 1, 1, 2, 4)) for kind in drawn.values()))
    habits = {
        (name, number): dice.randrange(bound)
        for name, kind in drawn.items()
        for number, bound in kind.bounds.items()
        if dice.random() < 0.3 and number not in ("slot", "which")
    }
    if dice.random() < CONTENDED:
        yield from _beginning(dice)
    while True:
        (name,) = dice.choices(names, cum_weights=weights)
        yield Action(name, tuple(_number(dice, habits, name, *item) for item in ACTION_KINDS[name].bounds.items()))


def _beginning(dice: random.Random) -> Iterator[Action]:
    *before, last = dice.choice(BEGINNINGS).split(", ")
    yield from map(_read_line, before)
    for name in dice.sample(TROUBLES, dice.randrange(4)):
        yield Action(name, tuple(dice.randrange(bound) for bound in ACTION_KINDS[name].bounds.values()))
    yield _read_line(last)
    for _ in range(dice.randrange(6)):
        yield Action("complete_effect", (0,))


def _number(dice: random.Random, habits: dict[tuple[str, str], int], name: str, number: str, bound: int) -> int:
    habit = habits.get((name, number))
    return dice.randrange(bound) if habit is None or dice.random() < 0.1 else habit


def line(what: Action) -> str:
    """Formats an action as a line."""
    numbers = zip(ACTION_KINDS[what.what].bounds, what.numbers, strict=True)
    return " ".join([what.what, *(f"{name}={number}" for name, number in numbers if number)])


def text(actions: Sequence[Action]) -> str:
    """Formats a scenario as it is pasted into a test."""
    return '"""\n' + "".join(f"{line(each)}\n" for each in actions) + '"""'


def read(scenario: str) -> list[Action]:
    """Parses the actions of a text. Raises BadLine."""
    return [_read_line(each.strip()) for each in scenario.splitlines() if each.strip()]


def _read_line(line: str) -> Action:
    what, *given = line.split()
    kind = ACTION_KINDS.get(what)
    if kind is None:
        raise BadLine(line, f"there is no action {what}; there are {', '.join(ACTION_KINDS)}")
    numbers: dict[str, Any] = dict.fromkeys(kind.bounds, 0)
    for name, _, value in (each.partition("=") for each in given):
        if name not in numbers or not value.isdecimal():
            raise BadLine(line, f"{name}={value} is not one of its numbers, which are {', '.join(numbers) or 'none'}")
        numbers[name] = int(value)
    return Action(what, tuple(numbers.values()))
