"""Compiled expressions that select devices."""

from collections.abc import Hashable
from typing import Final, NamedTuple

from muster.cel.compiler import Compiler
from muster.cel.device import Device
from muster.cel.errors import BadExpression, CostLimitExceeded, EvaluationFailed, Fault, OverBudget
from muster.cel.evaluation import Closure, Evaluation
from muster.cel.parser import parse
from muster.cel.paths import Path
from muster.cel.reads import key_of, reads
from muster.cel.tree import Literal, Node
from muster.cel.values import type_name
from muster.gangs.byte_cache import cached_by_bytes

MAX_BYTES: Final = 10 * 1024
"""Length of an expression in UTF-8, as the API server allows."""
COST_LIMIT: Final = 1_000_000
"""Units of cost for one device, as in kube-scheduler; about a second at most."""


class Outcome(NamedTuple):
    """The result of an evaluation."""

    matches: bool
    cost: int
    """Units spent, for a budget over many devices."""


class Selector:
    """A compiled expression. Stateless: one may be used for any number of devices, and by several threads."""

    __slots__ = ("_closure", "_reads", "_variables", "expression")

    def __init__(self, expression: str, tree: Node, closure: Closure, variables: int) -> None:
        self.expression = expression
        self._reads = tuple(sorted(reads(tree)))
        self._closure = closure
        self._variables = variables

    def matches(self, device: Device, cost_limit: int = COST_LIMIT) -> bool:
        """Whether the expression selects the device. Raises EvaluationFailed, CostLimitExceeded."""
        return self.evaluate(device, cost_limit).matches

    def evaluate(self, device: Device, cost_limit: int = COST_LIMIT) -> Outcome:
        """The result and its cost, at most `cost_limit`. Raises EvaluationFailed, CostLimitExceeded."""
        state = Evaluation(cost_limit, device, self._variables)
        try:
            value = self._closure(state)
        except Fault as fault:
            start, end = fault.span or (0, len(self.expression))
            raise self._failed(fault.message(), cost_limit - state.left, start, end) from None
        except OverBudget:
            value = None
        if state.left < 0:
            reason = f"it costs more than {cost_limit} units"
            raise CostLimitExceeded(self.expression, self.expression, reason, cost_limit)
        if type(value) is not bool:
            raise self._failed(f"the result is {type_name(value)}, not bool", cost_limit - state.left)
        return Outcome(value, cost_limit - state.left)

    def key(self, device: Device) -> Hashable:
        """Equal for devices that the expression cannot tell apart."""
        return key_of(device, self._reads)

    @property
    def reads(self) -> tuple[Path, ...]:
        """Parts of a device that the expression reads: a field, possibly with a domain and a name of it."""
        return self._reads

    def _failed(self, reason: str, cost: int, start: int = 0, end: int | None = None) -> EvaluationFailed:
        return EvaluationFailed(self.expression, self.expression[start:end], reason, cost)


def compile_selector(expression: str) -> Selector:
    """The selector of an expression. Raises BadExpression.

    Types of values are checked when the expression is evaluated, except that of a constant result. Selectors of at most
    1 MiB of expressions are kept, until `age_caches` has dropped them; for one thread.
    """
    return _compiled(expression)


@cached_by_bytes(1 << 20)
def _compiled(expression: str) -> Selector:
    if len(expression) > MAX_BYTES or len(expression.encode(errors="replace")) > MAX_BYTES:
        raise BadExpression(expression, 0, f"it is longer than {MAX_BYTES} bytes")
    tree = parse(expression)
    if isinstance(tree, Literal) and type(tree.value) is not bool:
        raise BadExpression(expression, 0, f"the result is {type_name(tree.value)}, not bool")
    compiler = Compiler(expression)
    closure = compiler.compile(tree, {})
    return Selector(expression, tree, closure, compiler.variables)
