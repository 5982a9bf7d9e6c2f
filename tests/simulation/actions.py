"""What can happen in a simulated scenario, as data: acts are drawn from a seed, written as lines, and read back.

    create slot=2 size=3 mode=1
    run
    crash

Numbers that are 0 are left out. What an act does is a function of the world and its numbers, registered with `@act`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from simulation.world import World


class Act(NamedTuple):
    """Something that happens; the numbers choose how, and among what there is."""

    what: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of act: its numbers by name, each below its bound, and how often it comes."""

    do: Callable[..., None]
    weight: float
    bounds: dict[str, int]


KINDS: dict[str, Kind] = {}


class BadLine(ValueError):
    """A line does not say an act."""

    def __init__(self, line: str, problem: str) -> None:
        super().__init__(f'"{line}" is no act: {problem}')


def act(weight: float, **bounds: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register what an act does. `do(world, **numbers)` must do something sensible, or nothing, in any world."""

    def register(do: Callable[..., None]) -> Callable[..., None]:
        KINDS[do.__name__] = Kind(do, weight, bounds)
        return do

    return register


def perform(world: World, what: Act) -> None:
    """Let it happen."""
    KINDS[what.what].do(world, *what.numbers)


def draw(seed: int) -> Iterator[Act]:
    """Acts without end. Every seed has habits of its own: some kinds come often, some hardly, some numbers are nearly
    always the same; so scenarios differ more than those of one mixture would, and get deeper into something.
    """
    dice = random.Random(seed)
    names = list(KINDS)
    weights = list(accumulate(kind.weight * dice.choice((0.1, 0.5, 1, 1, 2, 4)) for kind in KINDS.values()))
    habits = {
        (name, number): dice.randrange(bound)
        for name, kind in KINDS.items()
        for number, bound in kind.bounds.items()
        if dice.random() < 0.3 and number not in ("slot", "which")
    }
    while True:
        (name,) = dice.choices(names, cum_weights=weights)
        yield Act(name, tuple(_number(dice, habits, name, *item) for item in KINDS[name].bounds.items()))


def _number(dice: random.Random, habits: dict[tuple[str, str], int], name: str, number: str, bound: int) -> int:
    habit = habits.get((name, number))
    return dice.randrange(bound) if habit is None or dice.random() < 0.1 else habit


def line(what: Act) -> str:
    """The act in words."""
    numbers = zip(KINDS[what.what].bounds, what.numbers, strict=True)
    return " ".join([what.what, *(f"{name}={number}" for name, number in numbers if number)])


def text(acts: Sequence[Act]) -> str:
    """The scenario as it is pasted into a test."""
    return '"""\n' + "".join(f"{line(each)}\n" for each in acts) + '"""'


def read(scenario: str) -> list[Act]:
    """The acts of a text. Raises BadLine."""
    return [_read_line(each.strip()) for each in scenario.splitlines() if each.strip()]


def _read_line(said: str) -> Act:
    what, *given = said.split()
    kind = KINDS.get(what)
    if kind is None:
        raise BadLine(said, f"there is no act {what}; there are {', '.join(KINDS)}")
    numbers: dict[str, Any] = dict.fromkeys(kind.bounds, 0)
    for name, _, value in (each.partition("=") for each in given):
        if name not in numbers or not value.isdecimal():
            raise BadLine(said, f"{name}={value} is none of its numbers, which are {', '.join(numbers) or 'none'}")
        numbers[name] = int(value)
    return Act(what, tuple(numbers.values()))
