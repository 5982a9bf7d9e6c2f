"""Finds out whether a selector fails, or what it selects, at few devices and little cost: for messages."""

from collections.abc import Iterable, Sequence
from typing import Final

from muster.cel.device import BadDevice, device_of_facts
from muster.cel.errors import BadExpression, CostLimitExceeded, EvaluationFailed
from muster.cel.results import ResultCache
from muster.cel.selector import compile_selector
from muster.devices.facts import Device

MAX_DEVICES: Final = 16
MAX_COST: Final = 1000
"""Units of cost of one evaluation, and of one probe besides the last evaluation: 2 ms."""
_MAX_BYTES: Final = 1 << 18


class SelectorProbe:
    """Evaluates selectors for a few devices. Bounded by the cache: 256 KiB of expressions and values."""

    def __init__(self) -> None:
        self._results = ResultCache(_MAX_BYTES, MAX_COST)

    def failure(self, selectors: Sequence[str], devices: Iterable[Device]) -> str:
        """The error of the first selector that fails for one of the first MAX_DEVICES devices, which the selectors
        before it match. Empty if none is known to fail.
        """
        limit = self._results.cost + MAX_COST
        for _, facts in zip(range(MAX_DEVICES), devices, strict=False):
            try:
                device = device_of_facts(facts)
                for expression in selectors:
                    if self._results.cost > limit:
                        return ""
                    if not self._results.matches(compile_selector(expression), device):
                        break
            except CostLimitExceeded:  # not the limit that counts
                return ""
            except BadDevice:
                continue
            except (BadExpression, EvaluationFailed) as error:
                return str(error)
        return ""

    def first_match(self, selectors: Sequence[str], devices: Iterable[Device]) -> Device | None:
        """The first of MAX_DEVICES devices that all selectors match. None if none is known to."""
        limit = self._results.cost + MAX_COST
        for _, facts in zip(range(MAX_DEVICES), devices, strict=False):
            try:
                device = device_of_facts(facts)
                if all(
                    self._results.cost <= limit and self._results.matches(compile_selector(expression), device)
                    for expression in selectors
                ):
                    return facts
            except CostLimitExceeded:
                return None
            except (BadDevice, BadExpression, EvaluationFailed):
                continue
        return None
