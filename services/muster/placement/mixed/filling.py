"""Takes room for parts one after another, each as much as there is: what quick tries of all kinds are made of."""

from collections.abc import Iterable, Sequence

from muster.placement.room.packing import Choice, fewest_nodes
from muster.placement.room.parts import Attempt, Part, take
from muster.placement.room.room import Room


def fill_minimums(
    room: Room, parts: Sequence[Part], minimums: Sequence[int], order: Iterable[int], choice: Choice
) -> Attempt:
    """Parts in this order, each as many as fit until its gang has its minimum; it stays taken."""
    left = list(minimums)
    attempt = Attempt([0] * len(parts))
    for index in order:
        part = parts[index]
        target = min(part.wanted, left[part.gang])
        if target:
            left[part.gang] -= take(room, index, part, target, choice, attempt)
    return attempt


def fill_up(room: Room, parts: Sequence[Part], attempt: Attempt) -> None:
    """Members beyond those that the attempt has, where there is still room; first roles first."""
    for index, part in enumerate(parts):
        missing = part.wanted - attempt.placed[index]
        if missing:
            take(room, index, part, missing, fewest_nodes, attempt)
