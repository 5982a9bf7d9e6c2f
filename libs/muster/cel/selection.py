"""Selection of devices, as facts of the cluster, by expressions."""

from typing import Final

from muster.cel.device import BadDevice, Device, device_of_facts
from muster.cel.errors import BadExpression, CostLimitExceeded, EvaluationFailed
from muster.cel.results import ResultCache
from muster.cel.selector import compile_selector
from muster.devices.facts import Device as DeviceFacts
from muster.devices.selectors import SelectorError
from muster.gangs.byte_cache import ByteCache

_EXPENSIVE_BYTES: Final = 1 << 18


class DeviceSelection:
    """Evaluates expressions for devices; one evaluation for all devices that an expression cannot tell apart.

    An expression that exceeded its cost limit for one device fails for all, until `age_caches` has dropped it, so that
    it costs its limit once and not once a device. Bounded by the caches: 1 MiB of expressions that are compiled, 16 MiB
    of results, and 256 KiB of expensive expressions. For one thread.
    """

    def __init__(self) -> None:
        self._results = ResultCache()
        self._expensive: ByteCache[str, list[str]] = ByteCache(lambda _: [], _EXPENSIVE_BYTES)
        self._last: tuple[DeviceFacts, Device] | None = None
        """The device that was converted last: several expressions are evaluated for one after the other."""

    @property
    def cost(self) -> int:
        """Units that evaluations have spent so far, for limits of the caller."""
        return self._results.cost

    def matches(self, expression: str, facts: DeviceFacts) -> bool:
        """Whether the expression selects the device. Raises SelectorError, with both quoted."""
        failures = self._expensive(expression)
        if failures:
            raise SelectorError(failures[0])
        try:
            return self._results.matches(compile_selector(expression), self._device(facts))
        except CostLimitExceeded as exceeded:
            failures.append(str(exceeded))
            raise SelectorError(str(exceeded)) from None
        except (BadExpression, EvaluationFailed) as error:
            raise SelectorError(str(error)) from None
        except BadDevice as bad:
            raise SelectorError(f"no expression can be evaluated for device {facts.name}: {bad}") from None

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
