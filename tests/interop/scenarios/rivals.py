"""Scenarios of gangs that want the same nodes."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from interop.gang import Gang
from interop.sandbox import Sandbox

HIGH: Final = "interop-high"
"""Priority class of preemptors."""
_MANY: Final = 5


async def two_gangs(box: Sandbox) -> None:
    """Of two gangs that fit only one at a time, the second starts whole after the first is deleted. Until then most of
    its pods would fit.
    """
    await box.nodes(2 * box.size - 1)
    first, second = await box.gang("one"), await box.gang("two")
    started, waiting = await one_started(box, first, second)
    await box.waits(waiting)
    await box.delete(started)
    await box.started(waiting)


async def preemption(box: Sandbox) -> None:
    """A gang of higher priority preempts the whole gang, which starts whole again when the other is deleted."""
    await box.nodes(box.size)
    low = await box.gang("low")
    await box.started(low)
    high = await box.gang("high", priority_class=HIGH)
    await box.started(high)
    if box.kind.recovers:
        await box.waits(low)
    await box.delete(high)
    if box.kind.recovers:
        await box.started(low)


async def one_started(box: Sandbox, *gangs: Gang) -> tuple[Gang, Gang]:
    """Wait until one of two runs whole; returns it and the other, which may have no pod that is bound."""
    await box.until(
        lambda: any(len(box.running(gang)) == gang.size for gang in gangs),
        f"one of {' and '.join(gang.name for gang in gangs)} runs",
    )
    started, other = sorted(gangs, key=lambda gang: len(box.bound(gang)), reverse=True)
    assert not box.bound(other), f"{other.name} has bound pods while {started.name} runs\n{box.described()}"
    return started, other


async def many_gangs(box: Sandbox) -> None:
    """Of five gangs two fit at a time: two run whole, the others hold nothing, until each has run."""
    await box.nodes(3 * box.size - 1)
    left = [await box.gang(f"rival-{number}") for number in range(_MANY)]
    while left:
        fitting = min(2, len(left))
        names = ", ".join(gang.name for gang in left)
        await box.until(partial(_are_whole, box, left, fitting), f"{fitting} of {names} run")
        for gang in left:
            assert _is_whole(box, gang) or not box.bound(gang), f"{gang.name} has bound pods\n{box.described()}"
        ended = next(gang for gang in left if _is_whole(box, gang))
        left.remove(ended)
        await box.delete(ended)


def _is_whole(box: Sandbox, gang: Gang) -> bool:
    return len(box.running(gang)) == gang.size


def _are_whole(box: Sandbox, gangs: Sequence[Gang], count: int) -> bool:
    return sum(_is_whole(box, gang) for gang in gangs) == count
