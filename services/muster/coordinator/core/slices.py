"""Slices of long steps: a step stays one change of the state, but the event loop may run between its slices (I12).

What takes long is written as a generator that yields after so much work that a slice takes few milliseconds. The
coordinator's term lets other tasks run when slices add up; tests and the simulator run them to the end.
"""

from collections.abc import Generator, Iterable
from typing import Final, TypeVar

OBJECTS: Final = 250
"""Objects of a batch in one slice: at most 10 ms on a slow machine."""
GANGS: Final = 50
"""Gangs that are reconciled in one slice."""

_T = TypeVar("_T")

Slices = Generator[None, None, _T]
"""Ends with the result."""


def run_to_end(slices: Slices[_T]) -> _T:
    """All slices in one piece."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: _T = end.value
            return result


def parts(objects: tuple[_T, ...]) -> Iterable[tuple[_T, ...]]:
    """The objects of one slice after the other."""
    if len(objects) <= OBJECTS:
        return (objects,) if objects else ()
    return (objects[start : start + OBJECTS] for start in range(0, len(objects), OBJECTS))
