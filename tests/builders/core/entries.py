"""Counts of the entries that the coordinator's core keeps, by the attribute that holds them (I11)."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np

from muster.coordinator.core.machine import Machine

_CONTAINERS = (list, tuple, set, frozenset, deque)


def entries(machine: Machine) -> Counter[str]:
    """Entries of every map, set, list and array that the machine reaches: "cache.ledger.nodes" -> 4.

    Containers in containers are summed: "queue._by_key[]" are the entries of all values of `_by_key`. Tuples do not
    count, since they cannot grow.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", machine)])
    while waiting:
        path, value = waiting.popleft()  # breadth first: paths are the shortest
        if id(value) in seen or isinstance(value, str | bytes | int | float | Enum | type | None):
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            found[path] += len(value)
            waiting += [(f"{path}[]", each) for item in value.items() for each in item]
        elif isinstance(value, _CONTAINERS):
            found[path] += 0 if isinstance(value, tuple) else len(value)
            waiting += [(f"{path}[]", each) for each in value]
        elif isinstance(value, np.ndarray):
            found[path] += value.size
        elif type(value).__module__.startswith("muster."):
            waiting += [(f"{path}.{name}".lstrip("."), each) for name, each in _attributes(value)]
    return found


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in (*names, *getattr(value, "__struct_fields__", ()), *getattr(value, "__dict__", ())):
        if hasattr(value, name) and name not in ("__weakref__", "__dict__"):
            yield name, getattr(value, name)
