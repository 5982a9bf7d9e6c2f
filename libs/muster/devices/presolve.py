"""Removes the options of requests that cannot be allocated even alone, before the search."""

from collections import Counter
from typing import NamedTuple

from muster.devices.instance import Option, Problem, Shape, Slot


class ViableSlot(NamedTuple):
    """A slot by claim and number, with the options that may be possible and their indexes."""

    claim: int
    slot: int
    options: tuple[tuple[int, Option], ...]


def viable(shape: Shape, problem: Problem, number: int, slot: Slot) -> ViableSlot:
    """The slot without options that cannot be allocated even if nothing else is."""
    rules = problem.constraints[slot.claim]
    options = tuple((index, each) for index, each in enumerate(slot.options) if _fits_alone(shape, each, rules))
    return ViableSlot(slot.claim, number, options)


def _fits_alone(shape: Shape, option: Option, rules: tuple[tuple[int, bool], ...]) -> bool:
    """Devices suffice for the option if nothing else is allocated, each constraint for itself, counters aside."""
    selected = [each for each in shape.groups if each.selected & option.bit]
    usable = [(each, each.total if option.admin else each.free) for each in selected if each.usable & option.bit]
    number = sum(available for _, available in usable)
    if option.wanted == 0:
        return 0 < number == sum(each.total for each in selected) and not shape.incomplete & option.bit
    for index in option.constraints:
        attribute, distinct = rules[index]
        by_value: Counter[int] = Counter()
        for group, available in usable:
            if group.values[attribute] >= 0 and available:
                by_value[group.values[attribute]] += available
        number = min(number, len(by_value) if distinct else max(by_value.values(), default=0))
    return number >= option.wanted
