"""List and set functions of CEL and Kubernetes."""

from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from muster.cel import arithmetic
from muster.cel.budget import Budget
from muster.cel.errors import Fault, no_overload
from muster.cel.functions.overloads import ANY, Library
from muster.cel.values import NONE, Optional, compare, equal, type_name

LISTS: Final = Library()


@LISTS.method("isSorted", list)
def _is_sorted(budget: Budget, items: list[Any]) -> bool:
    budget.charge(len(items))
    return all(compare(budget, "isSorted", a, b) <= 0 for a, b in pairwise(items))


@LISTS.method("sum", list)
def _sum(budget: Budget, items: list[Any]) -> Any:
    budget.charge(len(items))
    if not items:
        return 0
    total = items[0]
    if type(total) in (bool, str, bytes, list):
        raise no_overload("sum", f"list({type_name(total)})")
    for each in items[1:]:
        total = arithmetic.add(budget, total, each)
    return total


@LISTS.method("min", list)
def _min(budget: Budget, items: list[Any]) -> Any:
    return _extreme(budget, "min", items, -1)


@LISTS.method("max", list)
def _max(budget: Budget, items: list[Any]) -> Any:
    return _extreme(budget, "max", items, 1)


def _extreme(budget: Budget, name: str, items: list[Any], sign: int) -> Any:
    budget.charge(len(items))
    if not items:
        raise Fault(f"{name} called on an empty list")
    best = items[0]
    for each in items[1:]:
        if compare(budget, name, each, best) == sign:
            best = each
    return best


@LISTS.method("indexOf", list, ANY)
def _index_of(budget: Budget, items: list[Any], item: Any) -> int:
    budget.charge(len(items))
    return next((index for index, each in enumerate(items) if equal(budget, each, item)), -1)


@LISTS.method("lastIndexOf", list, ANY)
def _last_index_of(budget: Budget, items: list[Any], item: Any) -> int:
    budget.charge(len(items))
    return next((index for index in range(len(items) - 1, -1, -1) if equal(budget, items[index], item)), -1)


@LISTS.method("includes", ANY, ANY)
def _includes(budget: Budget, target: Any, item: Any) -> bool:
    """For an attribute that is a value or a list of values."""
    return contains(budget, item, target) if type(target) is list else equal(budget, target, item)


def contains(budget: Budget, item: Any, items: list[Any]) -> bool:
    """Whether the list has an equal item."""
    budget.charge(len(items))
    return any(equal(budget, each, item) for each in items)


@LISTS.method("slice", list, int, int)
def _slice(budget: Budget, items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise Fault(f"slice: {start} to {end} is out of range for {len(items)} items")
    budget.charge(1 + end - start)
    return items[start:end]


@LISTS.method("flatten", list)
def _flatten_once(budget: Budget, items: list[Any]) -> list[Any]:
    return _flatten(budget, items, 1)


@LISTS.method("flatten", list, int)
def _flatten(budget: Budget, items: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise Fault("flatten: the level is negative")
    budget.charge(1 + len(items))
    # Level by level, so that a deep list needs no recursion.
    while depth > 0 and any(type(each) is list for each in items):
        flat: list[Any] = []
        for each in items:
            budget.charge(len(each) if type(each) is list else 1)
            if type(each) is list:
                flat.extend(each)
            else:
                flat.append(each)
        items, depth = flat, depth - 1
    return items


@LISTS.method("reverse", list)
def _reverse(budget: Budget, items: list[Any]) -> list[Any]:
    budget.charge(1 + len(items))
    return items[::-1]


@LISTS.method("distinct", list)
def _distinct(budget: Budget, items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for each in items:
        if not contains(budget, each, found):
            found.append(each)
    return found


@LISTS.method("sort", list)
def _sort(budget: Budget, items: list[Any]) -> list[Any]:
    return sorted_by(budget, items, items)


def sorted_by(budget: Budget, items: list[Any], keys: list[Any]) -> list[Any]:
    """The items by ascending keys of one type; equal keys keep their order. Raises Fault."""
    if len({type(key) for key in keys}) > 1:
        raise Fault("sort: the items are of several types")
    if len(keys) == 1:
        compare(budget, "sort", keys[0], keys[0])
    budget.charge(1 + len(items) * len(items).bit_length())

    def by_key(left: int, right: int) -> int:
        return compare(budget, "sort", keys[left], keys[right])

    return [items[index] for index in sorted(range(len(items)), key=cmp_to_key(by_key))]


@LISTS.function("lists.range", int)
def _range(budget: Budget, count: int) -> list[int]:
    if count < 0:
        raise Fault("lists.range: the size is negative")
    budget.charge(1 + count)
    return list(range(count))


@LISTS.method("first", list)
def _first(budget: Budget, items: list[Any]) -> Optional:
    budget.charge(1)
    return Optional(items[0]) if items else NONE


@LISTS.method("last", list)
def _last(budget: Budget, items: list[Any]) -> Optional:
    budget.charge(1)
    return Optional(items[-1]) if items else NONE


@LISTS.function("sets.contains", list, list)
def _sets_contains(budget: Budget, items: list[Any], part: list[Any]) -> bool:
    return all(contains(budget, each, items) for each in part)


@LISTS.function("sets.equivalent", list, list)
def _sets_equivalent(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return _sets_contains(budget, left, right) and _sets_contains(budget, right, left)


@LISTS.function("sets.intersects", list, list)
def _sets_intersects(budget: Budget, left: list[Any], right: list[Any]) -> bool:
    return any(contains(budget, each, left) for each in right)
