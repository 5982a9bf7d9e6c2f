"""Shrinks a failing scenario: removes actions while it fails in the same way, then reduces numbers."""

from collections.abc import Callable, Sequence

from simulation.actions import Action
from simulation.runner import failure

Fails = Callable[[Sequence[Action]], bool]


def shrink(actions: Sequence[Action]) -> list[Action]:
    """Returns the shortest scenario found that fails in the same way. Raises ValueError if this one does not fail."""
    found = failure(actions)
    if found is None:
        raise ValueError("this scenario does not fail; there is nothing to shrink")

    def fails(candidate: Sequence[Action]) -> bool:
        again = failure(candidate)
        return again is not None and again.kind == found.kind

    shortest = list(actions)
    while True:
        shorter = _smaller_numbers(_fewer(shortest, fails), fails)
        if shorter == shortest:
            return shortest
        shortest = shorter


def _fewer(actions: list[Action], fails: Fails) -> list[Action]:
    """Removes halves, quarters ... single actions, from the end."""
    size = max(1, len(actions) // 2)
    while True:
        end = len(actions)
        while end > 0:
            shorter = actions[: max(0, end - size)] + actions[end:]
            if fails(shorter):
                actions = shorter
            end -= size
        if size == 1:
            return actions
        size = max(1, size // 2)


def _smaller_numbers(actions: list[Action], fails: Fails) -> list[Action]:
    """Reduces every number to 0 if possible, else to half, else by one."""
    for index in range(len(actions)):
        for place in range(len(actions[index].numbers)):
            actions = _smaller(actions, index, place, fails)
    return actions


def _smaller(actions: list[Action], index: int, place: int, fails: Fails) -> list[Action]:
    while number := actions[index].numbers[place]:
        for less in sorted({0, number // 2, number - 1}):
            numbers = (*actions[index].numbers[:place], less, *actions[index].numbers[place + 1 :])
            changed = [*actions[:index], Action(actions[index].what, numbers), *actions[index + 1 :]]
            if fails(changed):
                actions = changed
                break
        else:
            break
    return actions
