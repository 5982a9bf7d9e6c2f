"""The state of one evaluation, and errors with their place."""

from collections.abc import Callable
from typing import Any

from muster.cel.budget import Budget
from muster.cel.device import Device
from muster.cel.errors import Fault
from muster.cel.tree import Span


class Evaluation(Budget):
    """Budget, device and variables of one evaluation."""

    __slots__ = ("device", "variables")

    def __init__(self, limit: int, device: Device, variables: int) -> None:
        super().__init__(limit)
        self.device = device
        self.variables: list[Any] = [None] * variables
        """By nesting of the comprehensions and bindings that declare them."""


Closure = Callable[[Evaluation], Any]
"""A compiled part of an expression. Raises Fault, OverBudget."""


def at(span: Span, fault: Fault) -> Fault:
    """The fault with its place, unless an inner part has set it."""
    if fault.span is None:
        fault.span = span
    return fault
