"""Selection of devices, as facts of the cluster, by expressions."""

from typing import Final

from muster.cel.device import BadDevice, Device, device_of_facts
from muster.cel.errors import BadExpression, CostLimitExceeded, EvaluationFailed
from muster.cel.results import ResultCache
from muster.cel.selector import compile_selector
from muster.devices.facts import Device as DeviceFacts
from muster.devices.selectors import SelectorError
from muster.gangs.byte_cache import ByteCache
from muster.gangs.quoting import quoted

MAX_COST: Final = 50_000
"""Units of cost of one evaluation, some 50 ms at most; kube-scheduler permits 20 times as many."""
MEAN_COST: Final = 100
"""Units of cost of an evaluation on average, besides MAX_COST once: usual expressions cost 10 to 50. So no tenant's
expression takes a service longer than 0.1 ms a device (I12)."""

_EXPENSIVE_BYTES: Final = 1 << 18


class DeviceSelection:
    """Evaluates expressions for devices; one evaluation for all devices that an expression cannot tell apart.

    An expression that exceeds MAX_COST for one device, or MEAN_COST for many, fails for all, until `age_caches` has
    dropped it. Bounded by the caches: 1 MiB of expressions that are compiled, 16 MiB of results, and twice 256 KiB of
    expressions with their costs. For one thread.
    """

    def __init__(self) -> None:
        self._results = ResultCache(cost_limit=MAX_COST)
        self._spent: ByteCache[str, list[int]] = ByteCache(lambda _: [0, 0], _EXPENSIVE_BYTES)
        """Number and cost of the evaluations of an expression."""
        self._expensive: ByteCache[str, list[str]] = ByteCache(lambda _: [], _EXPENSIVE_BYTES)
        self.exceeded = 0
        """How often an expression has exceeded a limit of cost."""
        self._last: tuple[DeviceFacts, Device] | None = None
        """The device that was converted last: several expressions are evaluated for one after the other."""

    @property
    def cost(self) -> int:
        """Units that evaluations have spent so far, for limits of the caller."""
        return self._results.cost

    def too_expensive(self, expression: str) -> str:
        """Why the expression fails for all devices, quoted: it has exceeded a limit of cost. Empty: it has not."""
        failures = self._expensive(expression)
        return failures[0] if failures else ""

    def matches(self, expression: str, facts: DeviceFacts) -> bool:
        """Whether the expression selects the device. Raises SelectorError, with both quoted."""
        failures = self._expensive(expression)
        if failures:
            raise SelectorError(failures[0])
        before = self._results.evaluations, self._results.cost
        try:
            matches = self._results.matches(compile_selector(expression), self._device(facts))
            if before[0] != self._results.evaluations:
                self._spend(expression, self._results.cost - before[1], failures)
            return matches
        except CostLimitExceeded as exceeded:
            failures.append(str(exceeded))
            self.exceeded += 1
            raise SelectorError(str(exceeded)) from None
        except (BadExpression, EvaluationFailed) as error:
            raise SelectorError(str(error)) from None
        except BadDevice as bad:
            raise SelectorError(f"no expression can be evaluated for device {facts.name}: {bad}") from None

    def _spend(self, expression: str, cost: int, failures: list[str]) -> None:
        """Count an evaluation. Raises SelectorError if the expression has become too expensive."""
        spent = self._spent(expression)
        spent[0] += 1
        spent[1] += cost
        if spent[1] > MAX_COST + MEAN_COST * spent[0]:
            mean = spent[1] // spent[0]
            failures.append(f"{quoted(expression)} costs {mean} units a device, more than the {MEAN_COST} permitted")
            self.exceeded += 1
            raise SelectorError(failures[0])

    def _device(self, facts: DeviceFacts) -> Device:
        if self._last is None or self._last[0] is not facts:
            self._last = (facts, device_of_facts(facts))
        return self._last[1]


def expression_problem(expression: str) -> str:
    """Why an expression cannot be compiled, with it quoted; empty if it can."""
    try:
        compile_selector(expression)
    except BadExpression as error:
        return str(error)
    return ""
