"""Loops over all objects of a cluster that leave other tasks their turns (I12)."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

OBJECTS: Final = 250
"""Objects of one turn."""


async def in_turns(objects: Iterable[T], objects_of_turn: int = OBJECTS) -> AsyncIterator[T]:
    """The objects; other tasks have turns in between."""
    for number, each in enumerate(tuple(objects), start=1):
        yield each
        if number % objects_of_turn == 0:
            await asyncio.sleep(0)
