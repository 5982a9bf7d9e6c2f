"""Converts PodDisruptionBudgets to facts: the pods they cover, and how many of them may be evicted.

A malformed budget allows no disruption, and covers all pods of its namespace if its selector is malformed: a typing
error must not cost a user protected pods.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.facts import DisruptionBudget
from muster.gangs.selectors import EVERYTHING_SELECTED, LabelSelector
from muster.kube.objects import NOTHING, UNREADABLE, Encoded, Int32, ObjectMeta, salvage
from muster.kube.selectors import BadSelector, label_selector


class BudgetMeta(ObjectMeta, rename="camel", frozen=True, gc=False):
    """metadata with the generation, which tells whether the status is current."""

    generation: int = 0


class BudgetSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec of a PodDisruptionBudget."""

    selector: Raw = NOTHING


class BudgetStatus(Struct, rename="camel", frozen=True, gc=False):
    """status of a PodDisruptionBudget."""

    observed_generation: int = 0
    disruptions_allowed: Int32 = 0


class PodDisruptionBudget(Struct, rename="camel", frozen=True, gc=False):
    """A PodDisruptionBudget (policy/v1)."""

    metadata: BudgetMeta = field(default_factory=BudgetMeta)
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)

    @property
    def problem(self) -> str:
        """The fields that could not be read; empty if all could."""
        return ""


class MalformedBudget(PodDisruptionBudget, rename="camel", frozen=True, gc=False):
    """A PodDisruptionBudget with fields of wrong types, which keep their defaults."""

    unreadable: str = ""

    @property
    def problem(self) -> str:
        return self.unreadable


class ReadBudget(Struct, frozen=True):
    """A budget's facts, the selector of its pods, and a description of what could not be read."""

    facts: DisruptionBudget
    selector: LabelSelector
    problem: str = ""


_budget: Final = msgspec.json.Decoder(PodDisruptionBudget)


def decode_budget(data: Encoded) -> PodDisruptionBudget:
    """Decode a budget; a MalformedBudget if fields have wrong types. Raises BadObject if it is not a JSON object."""
    try:
        return _budget.decode(data)
    except UNREADABLE:
        known, problem = salvage(PodDisruptionBudget, data)
        return MalformedBudget(**known, unreadable=problem)


def read_budget(budget: PodDisruptionBudget) -> ReadBudget:
    """The facts of a budget. An outdated status (observedGeneration) allows no disruption."""
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
