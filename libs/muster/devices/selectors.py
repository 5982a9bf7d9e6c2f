"""Which devices of a slice meet selectors, evaluated once per slice and list of expressions."""

from collections.abc import Callable
from typing import Final

from muster.devices.facts import Device, Slice

Matches = Callable[[str, Device], bool]
"""Evaluates a CEL expression for a device. Raises SelectorError."""

Selectors = tuple[str, ...]
"""CEL expressions, all of which select a device."""

_MAX_LISTS: Final = 256


class SelectorError(ValueError):
    """An expression cannot be compiled, or fails for a device; the message quotes both."""


class SelectorResults:
    """For each device of a slice, the index of the first selector that excludes it.

    The number of selectors if none does; negative if selector `-index - 1` fails. Entries end with their slice, and are
    cleared when a slice has those of 256 lists; so the size is bounded by the slices that exist.
    """

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self._results: dict[str, tuple[Slice, dict[Selectors, tuple[int, ...]]]] = {}
        self.evaluations = 0
        """Expressions that were evaluated."""

    def knows(self, slice_: Slice, selectors: Selectors) -> bool:
        """The selectors were evaluated for the slice."""
        known, results = self._results.get(slice_.name, (None, {}))
        return known is slice_ and selectors in results

    def excluded_by(self, slice_: Slice, selectors: Selectors) -> tuple[int, ...]:
        """For each device of the slice, the index of the first selector that excludes it."""
        known, results = self._results.get(slice_.name, (None, {}))
        if known is not slice_ or len(results) >= _MAX_LISTS:
            results = {}
            self._results[slice_.name] = (slice_, results)
        found = results.get(selectors)
        if found is None:
            found = results[selectors] = tuple(self._first_excluding(each, selectors) for each in slice_.devices)
        return found

    def error(self, device: Device, expression: str) -> str:
        """The message of an expression that fails for the device."""
        try:
            self._matches(expression, device)
        except SelectorError as error:
            return str(error)
        return ""

    def forget(self, slice_name: str) -> None:
        """Drop the results of a slice that was removed."""
        self._results.pop(slice_name, None)

    def _first_excluding(self, device: Device, selectors: Selectors) -> int:
        for index, expression in enumerate(selectors):
            self.evaluations += 1
            try:
                if not self._matches(expression, device):
                    return index
            except SelectorError:
                return -index - 1
        return len(selectors)
