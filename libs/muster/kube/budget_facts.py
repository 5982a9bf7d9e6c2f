"""PodDisruptionBudgets off the wire become facts: which pods they cover, and how many of these may be evicted.

One that cannot be read allows nothing, and covers all pods of its namespace if it is the selector that cannot: a user
who wanted pods spared must not lose them to a typing error.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.facts import DisruptionBudget
from muster.kube.objects import NOTHING, UNREADABLE, Encoded, Int32, ObjectMeta, salvage
from muster.kube.selectors import EVERYTHING_SELECTED, BadSelector, LabelSelector, label_selector


class BudgetMeta(ObjectMeta, rename="camel", frozen=True, gc=False):
    """metadata, with what tells whether the status is up to date."""

    generation: int = 0


class BudgetSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec of a disruption budget."""

    selector: Raw = NOTHING


class BudgetStatus(Struct, rename="camel", frozen=True, gc=False):
    """status of a disruption budget."""

    observed_generation: int = 0
    disruptions_allowed: Int32 = 0


class PodDisruptionBudget(Struct, rename="camel", frozen=True, gc=False):
    """A disruption budget (policy/v1)."""

    metadata: BudgetMeta = field(default_factory=BudgetMeta)
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)

    @property
    def problem(self) -> str:
        """What could not be read; empty if all could."""
        return ""


class MalformedBudget(PodDisruptionBudget, rename="camel", frozen=True, gc=False):
    """A disruption budget with fields of wrong types; those are left at their defaults."""

    unreadable: str = ""

    @property
    def problem(self) -> str:
        return self.unreadable


class ReadBudget(Struct, frozen=True):
    """A budget's facts, which pods of its namespace it covers, and what of it could not be read, in words."""

    facts: DisruptionBudget
    selector: LabelSelector
    problem: str = ""


_budget: Final = msgspec.json.Decoder(PodDisruptionBudget)


def decode_budget(data: Encoded) -> PodDisruptionBudget:
    """Read a budget; a MalformedBudget if fields have wrong types. Raises BadObject if it is no JSON object."""
    try:
        return _budget.decode(data)
    except UNREADABLE:
        known, problem = salvage(PodDisruptionBudget, data)
        return MalformedBudget(**known, unreadable=problem)


def read_budget(budget: PodDisruptionBudget) -> ReadBudget:
    """What Muster knows of a budget. A status from before the last change of the spec allows nothing."""
    metadata, status = budget.metadata, budget.status
    id_ = f"{metadata.namespace}/{metadata.name}"
    problem, selector = budget.problem, EVERYTHING_SELECTED
    if not problem:
        try:
            selector = label_selector(bytes(budget.spec.selector))
        except BadSelector as error:
            problem = f"spec.selector: {error}"
    current = not problem and status.observed_generation >= metadata.generation
    allowed = max(0, status.disruptions_allowed) if current else 0
    return ReadBudget(DisruptionBudget(id_, allowed), selector, problem)
