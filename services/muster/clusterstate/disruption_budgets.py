"""PodDisruptionBudgets, and the label sets that they cover.

Budgets are found by a label that they require, and label sets likewise, so that a change of one budget costs as much as
the pods that it covers, however many others there are.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Final

import structlog
from msgspec import Struct

from muster.clusterstate.label_sets import LabelledPods, LabelSets, selected
from muster.gangs.facts import DisruptionBudget
from muster.gangs.selectors import NOTHING_SELECTED, LabelSelector, Operator
from muster.kube.budget_facts import PodDisruptionBudget, read_budget

_log = structlog.get_logger(__name__)

_Place = tuple[str, str, str | None]
"""A namespace, a label key and a value, None if any value will do; the key is empty if the selector requires none."""

MAX_REQUIREMENTS: Final = 8
MAX_VALUES: Final = 1000
"""Requirements of a budget's selector, and values of all of them. Each requirement is compared with each label set of
the namespace (I12). Budgets that have more cover nothing here; the API server respects them, too.
"""
_MOST_HANDLES: Final = 2
"""Labels of which the one with the fewest label sets is chosen: each is indexed."""

MAX_BUDGETS: Final = 1000
"""Budgets of a namespace that are considered: those that require no label are compared with each new label set, and
each label set has a list of those that cover it. The API server respects the others, too: an eviction that they forbid
fails.
"""


class BudgetChange(Struct, frozen=True):
    """Effect of a change: the new facts if they differ, and the pods that other budgets cover than before."""

    facts: DisruptionBudget | None = None
    covered: Collection[LabelledPods] = ()


class _Indexed:
    """A budget's uid and selector, and the label by which it is found: one that all covered pods have."""

    def __init__(self, namespace: str, uid: str, selector: LabelSelector, key: str, values: tuple[str, ...]) -> None:
        self.namespace = namespace
        self.uid = uid
        self.selector = selector
        self.key = key
        self.values = values

    @property
    def places(self) -> Iterator[_Place]:
        for value in self.values or (None,):
            yield self.namespace, self.key, value


class Budgets:
    """Facts by id. Entries end with the budget, and the last result for a namespace with its last budget (I11)."""

    def __init__(self, label_sets: LabelSets) -> None:
        self.facts: dict[str, DisruptionBudget] = {}
        self._label_sets = label_sets
        self._budgets: dict[str, _Indexed] = {}
        self._by_place: dict[_Place, dict[str, LabelSelector]] = {}
        self._in_namespace: dict[str, int] = {}
        self._last: dict[str, tuple[str, ...]] = {}  # the last result for a namespace, shared by label sets
        self._ids: dict[str, str] = {}  # uid -> id
        self._problems: dict[str, str] = {}
        self._left_out: dict[str, dict[str, tuple[str, LabelSelector]]] = {}
        """Uids and selectors of budgets above MAX_BUDGETS by id, by namespace; they end with the budget, or when others
        end."""

    def put(self, budget: PodDisruptionBudget) -> BudgetChange:
        """Add or update a budget."""
        read = read_budget(budget)
        id_, namespace, uid = read.facts.id, budget.metadata.namespace, budget.metadata.uid
        selector, excess = _limited(read.selector)
        effect = "allows no eviction" if read.problem else "only the API server considers it"
        self._report(id_, read.problem or excess, effect)
        self._ids[uid] = id_
        before, known = self.facts.get(id_), self._budgets.get(id_)
        self.facts[id_] = read.facts
        facts = read.facts if read.facts != before else None
        if known is not None and known.selector == selector:
            known.uid = uid
            return BudgetChange(facts)
        changed = self._unindex(id_) if known is not None else []
        if self._in_namespace.get(namespace, 0) >= MAX_BUDGETS:
            self._leave_out(namespace, id_, uid, selector)
        else:
            changed += self._index(namespace, id_, uid, selector)
        return BudgetChange(facts, dict.fromkeys(changed).keys())

    def remove(self, uid: str) -> tuple[str, Collection[LabelledPods]] | None:
        """Remove a budget; returns its id and the pods that it covered, None if another budget has that id by now."""
        id_ = self._ids.pop(uid, None)
        if id_ is None:
            return None
        namespace = id_.split("/", 1)[0]
        left_out = self._left_out.get(namespace, {})
        known = self._budgets.get(id_)
        if uid != (known.uid if known is not None else left_out[id_][0]):
            return None
        del self.facts[id_]
        self._problems.pop(id_, None)
        covered = self._unindex(id_) if known is not None else []
        left_out.pop(id_, None)
        if left_out and known is not None:
            id_of_next = next(iter(left_out))
            covered += self._index(namespace, id_of_next, *left_out.pop(id_of_next))
        if not left_out:
            self._left_out.pop(namespace, None)
        return id_, dict.fromkeys(covered).keys()

    def covering(self, label_set: LabelledPods) -> tuple[str, ...]:
        """Ids of the budgets that cover a label set, sorted."""
        namespace = label_set.label_set.namespace
        if namespace not in self._in_namespace:
            return ()
        labels = label_set.label_set.labels
        found: list[str] = []
        any_value = [(key, None) for key in ("", *labels)]
        for key, value in chain(any_value, labels.items()):
            there = self._by_place.get((namespace, key, value))
            if there is not None:
                found += [id_ for id_, selector in there.items() if selector.matches(labels)]
        last = self._last.get(namespace)
        budgets = tuple(sorted(found))
        if budgets == last:
            return last
        self._last[namespace] = budgets
        return budgets

    def needed_indexes(self) -> set[tuple[str, str]]:
        """Namespaces and keys by which label sets are looked up."""
        return {(each.namespace, key) for each in self._budgets.values() for key, _ in _handles(each.selector)}

    def _index(self, namespace: str, id_: str, uid: str, selector: LabelSelector) -> list[LabelledPods]:
        """Add a budget to the indexes; returns the label sets that it covers."""
        indexed = _Indexed(namespace, uid, selector, *self._handle(namespace, selector))
        self._budgets[id_] = indexed
        self._in_namespace[namespace] = self._in_namespace.get(namespace, 0) + 1
        for place in indexed.places:
            self._by_place.setdefault(place, {})[id_] = selector
        covered = selected(self._candidates(indexed), selector)
        _replace_budgets(covered, lambda budgets: _with(budgets, id_))
        return covered

    def _leave_out(self, namespace: str, id_: str, uid: str, selector: LabelSelector) -> None:
        if namespace not in self._left_out:
            _log.warning("disruption_budgets_left_out", namespace=namespace, considered=MAX_BUDGETS)
        self._left_out.setdefault(namespace, {})[id_] = (uid, selector)

    def _unindex(self, id_: str) -> list[LabelledPods]:
        """Remove a budget from the indexes; returns the label sets that it covered."""
        known = self._budgets.pop(id_)
        self._in_namespace[known.namespace] -= 1
        if not self._in_namespace[known.namespace]:
            del self._in_namespace[known.namespace]
            self._last.pop(known.namespace, None)
        for place in known.places:
            del self._by_place[place][id_]
            if not self._by_place[place]:
                del self._by_place[place]
        covered = [each for each in self._candidates(known) if id_ in each.budgets]
        _replace_budgets(covered, lambda budgets: tuple([other for other in budgets if other != id_]))
        return covered

    def _handle(self, namespace: str, selector: LabelSelector) -> tuple[str, tuple[str, ...]]:
        """The required label with the fewest label sets and budgets to look through, and its values; empty without."""

        def crowd(handle: tuple[str, tuple[str, ...]]) -> int:
            key, values = handle
            budgets = sum(len(self._by_place.get((namespace, key, value), ())) for value in values or (None,))
            return budgets + self._label_sets.count(namespace, key, values)

        handles = _handles(selector)
        return min(handles, key=crowd) if len(handles) > 1 else handles[0] if handles else ("", ())

    def _candidates(self, budget: _Indexed) -> Iterable[LabelledPods]:
        if budget.selector.requirements is None:
            return ()
        if budget.key:
            return self._label_sets.having(budget.namespace, budget.key, budget.values)
        return self._label_sets.in_namespace(budget.namespace)

    def _report(self, id_: str, problem: str, effect: str) -> None:
        if problem != self._problems.get(id_, ""):
            self._problems[id_] = problem
            if problem:
                _log.warning("disruption_budget_invalid", budget=id_, problem=problem, effect=effect)


def _replace_budgets(covered: Iterable[LabelledPods], replaced: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
    """Replace the budgets of label sets; those that share a tuple share the new one."""
    known: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for each in covered:
        before = each.budgets
        pair = known.get(id(before))
        if pair is None:
            pair = known[id(before)] = before, replaced(before)
        each.budgets = pair[1]


def _with(budgets: tuple[str, ...], id_: str) -> tuple[str, ...]:
    at = bisect_left(budgets, id_)
    return (*budgets[:at], id_, *budgets[at:])


def _handles(selector: LabelSelector) -> list[tuple[str, tuple[str, ...]]]:
    """Label keys that covered pods must have, and the values allowed; no values allow any. Of many, those that allow
    the fewest.
    """
    handles = [
        (each.key, each.values)
        for each in selector.requirements or ()
        if each.operator in (Operator.IN, Operator.EXISTS)
    ]
    return sorted(handles, key=lambda handle: len(handle[1]) or MAX_VALUES)[:_MOST_HANDLES]


def _limited(selector: LabelSelector) -> tuple[LabelSelector, str]:
    """The selector, and why it is not that of the budget, if it exceeds a limit: it selects nothing then."""
    requirements = selector.requirements or ()
    values = sum(len(each.values) for each in requirements)
    if len(requirements) <= MAX_REQUIREMENTS and values <= MAX_VALUES:
        return selector, ""
    found = f"its selector has {len(requirements)} requirements with {values} values"
    return NOTHING_SELECTED, f"{found}; {MAX_REQUIREMENTS} and {MAX_VALUES} are considered"
