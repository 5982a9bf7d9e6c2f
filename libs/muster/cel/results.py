"""Results of selectors, kept for devices that are equal in what the expression reads."""

from typing import Final

from muster.cel.device import Device
from muster.cel.errors import EvaluationFailed
from muster.cel.selector import COST_LIMIT, Selector
from muster.gangs.byte_cache import ByteCache

MAX_BYTES: Final = 16 << 20
"""Expressions and values that are kept, for about 50,000 results of usual expressions."""


class ResultCache:
    """Evaluates each selector once for devices with equal values of what it reads; errors are kept, too.

    Bounded by MAX_BYTES of expressions and values. Results that are not used are dropped by `age_caches`. For one
    thread.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, cost_limit: int = COST_LIMIT) -> None:
        """`cost_limit`: units of cost of one evaluation."""
        self._slots = ByteCache(_empty, max_bytes)
        self._cost_limit = cost_limit
        self.evaluations = 0
        """Evaluations so far."""
        self.cost = 0
        """Units that evaluations have spent so far, for the limit of a caller on many devices."""

    @property
    def kept_bytes(self) -> int:
        """Approximate size of what is kept."""
        return self._slots.used_bytes

    def matches(self, selector: Selector, device: Device) -> bool:
        """Whether the expression selects the device. Raises EvaluationFailed, CostLimitExceeded."""
        slot = self._slots((selector.expression, selector.key(device)))
        if not slot:
            slot.append(self._evaluated(selector, device))
        result = slot[0]
        if isinstance(result, bool):
            return result
        # A new error each time: raising the kept one would add to its traceback.
        raise type(result)(result.expression, result.part, result.reason)

    def _evaluated(self, selector: Selector, device: Device) -> bool | EvaluationFailed:
        self.evaluations += 1
        try:
            outcome = selector.evaluate(device, self._cost_limit)
        except EvaluationFailed as failed:
            self.cost += failed.cost
            return failed.with_traceback(None)
        self.cost += outcome.cost
        return outcome.matches


def _empty(_: tuple[str, object]) -> list[bool | EvaluationFailed]:
    return []
