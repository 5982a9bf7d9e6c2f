"""Makes a failing scenario short: acts are left out while it fails in the same way, then numbers become small."""

from collections.abc import Callable, Sequence

from simulation.actions import Act
from simulation.runner import failure

Fails = Callable[[Sequence[Act]], bool]


def shrink(acts: Sequence[Act]) -> list[Act]:
    """The shortest scenario found that fails like this one. Raises ValueError if this one does not fail."""
    found = failure(acts)
    if found is None:
        raise ValueError("this scenario does not fail; there is nothing to shrink")

    def fails(candidate: Sequence[Act]) -> bool:
        again = failure(candidate)
        return again is not None and again.kind == found.kind

    shortest = list(acts)
    while True:
        shorter = _smaller_numbers(_fewer(shortest, fails), fails)
        if shorter == shortest:
            return shortest
        shortest = shorter


def _fewer(acts: list[Act], fails: Fails) -> list[Act]:
    """Leave out halves, quarters ... single acts, from the end."""
    size = max(1, len(acts) // 2)
    while True:
        end = len(acts)
        while end > 0:
            shorter = acts[: max(0, end - size)] + acts[end:]
            if fails(shorter):
                acts = shorter
            end -= size
        if size == 1:
            return acts
        size = max(1, size // 2)


def _smaller_numbers(acts: list[Act], fails: Fails) -> list[Act]:
    """Every number 0 if it may be, else half, else one less."""
    for index in range(len(acts)):
        for place in range(len(acts[index].numbers)):
            acts = _smaller(acts, index, place, fails)
    return acts


def _smaller(acts: list[Act], index: int, place: int, fails: Fails) -> list[Act]:
    while number := acts[index].numbers[place]:
        for less in sorted({0, number // 2, number - 1}):
            numbers = (*acts[index].numbers[:place], less, *acts[index].numbers[place + 1 :])
            changed = [*acts[:index], Act(acts[index].what, numbers), *acts[index + 1 :]]
            if fails(changed):
                acts = changed
                break
        else:
            break
    return acts
