"""PodDisruptionBudgets, and which of them cover a pod."""

from collections.abc import Mapping

import structlog
from msgspec import Struct

from muster.gangs.facts import DisruptionBudget
from muster.kube.budget_facts import PodDisruptionBudget, read_budget
from muster.kube.selectors import LabelSelector

_log = structlog.get_logger(__name__)


class BudgetChange(Struct, frozen=True):
    """Effect of a change: the new facts if they differ, and whether the budget covers other pods than before."""

    facts: DisruptionBudget | None = None
    covers_others: bool = False


class Budgets:
    """Facts by id."""

    def __init__(self) -> None:
        self.facts: dict[str, DisruptionBudget] = {}
        self._selectors: dict[str, dict[str, LabelSelector]] = {}  # namespace -> id -> selector
        self._uids: dict[str, str] = {}  # id -> uid
        self._problems: dict[str, str] = {}

    def put(self, budget: PodDisruptionBudget) -> BudgetChange:
        """Add or update a budget."""
        read = read_budget(budget)
        id_, namespace = read.facts.id, budget.metadata.namespace
        self._report(id_, read.problem)
        self._uids[id_] = budget.metadata.uid
        before = self.facts.get(id_)
        self.facts[id_] = read.facts
        selectors = self._selectors.setdefault(namespace, {})
        known = selectors.get(id_)
        selectors[id_] = read.selector
        return BudgetChange(read.facts if read.facts != before else None, read.selector != known)

    def remove(self, uid: str) -> str | None:
        """Remove a budget; returns its id, or None if another budget has that id by now."""
        id_ = next((each for each, owner in self._uids.items() if owner == uid), None)
        if id_ is None:
            return None
        del self._uids[id_], self.facts[id_]
        self._problems.pop(id_, None)
        namespace = id_.partition("/")[0]
        del self._selectors[namespace][id_]
        if not self._selectors[namespace]:
            del self._selectors[namespace]
        return id_

    def covering(self, namespace: str, labels: Mapping[str, str] | None) -> tuple[str, ...]:
        """Ids of the budgets that cover a pod with these labels, sorted."""
        selectors = self._selectors.get(namespace)
        if selectors is None:
            return ()
        return tuple(sorted([id_ for id_, selector in selectors.items() if selector.matches(labels or {})]))

    def _report(self, id_: str, problem: str) -> None:
        if problem != self._problems.get(id_, ""):
            self._problems[id_] = problem
            if problem:
                _log.warning("disruption_budget_invalid", budget=id_, problem=problem, effect="allows no eviction")
