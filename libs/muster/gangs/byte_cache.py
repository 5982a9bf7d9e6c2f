"""Caches of the results of functions whose arguments users choose.

They are bounded by the size of the arguments, or by their number where arguments are short, and in time: every process
calls `age_caches` regularly, so that results which only a workload of the past needed are dropped (I11).
"""

from collections.abc import Callable
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import astuple

K = TypeVar("K")
V = TypeVar("V")

_LARGEST_SHARE: Final = 64
"""An argument of more than this part of the limit is not cached: a few such would replace all others."""


class ByteCache(Generic[K, V]):
    """Caches results by argument, with at most `max_bytes` of arguments; results are of similar size.

    The least recently used half is dropped when the limit is reached: results that are not used while `max_bytes` / 2
    of other arguments come are gone, and so are those that are not used between two calls of `age_caches`.
    One thread may use it while another one calls `age_caches`.
    """

    def __init__(self, compute: Callable[[K], V], max_bytes: int) -> None:
        self._compute = compute
        self._half = max_bytes // 2
        self._largest = max_bytes // _LARGEST_SHARE
        # I11: both generations together hold entries of at most max_bytes.
        self._recent: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self._recent_bytes = self._older_bytes = 0
        _caches.add(self)

    def __len__(self) -> int:
        """Number of cached results; one may count twice."""
        return len(self._recent) + len(self._older)

    @property
    def used_bytes(self) -> int:
        """Approximate size of the cached arguments."""
        return self._recent_bytes + self._older_bytes

    def __call__(self, key: K) -> V:
        """The result for an argument. Errors are not cached."""
        try:
            return self._recent[key]
        except KeyError:
            pass
        size = size_of(key)
        if size > self._largest:
            return self._compute(key)
        older = self._older  # `age` may be called by another thread
        value = older[key] if key in older else self._compute(key)
        if self._recent_bytes + size > self._half:
            self.age()
        self._recent[key] = value
        self._recent_bytes += size
        return value

    def age(self) -> None:
        """Forget what was not used since the last call, at the latest."""
        self._older, self._older_bytes = self._recent, self._recent_bytes
        self._recent, self._recent_bytes = {}, 0


_caches: Final[WeakSet[ByteCache[Any, Any]]] = WeakSet()
"""Bounded by the caches that exist."""
_by_number: Final[list["_lru_cache_wrapper[Any]"]] = []
"""Bounded by the functions that are decorated."""


def age_caches() -> None:
    """Forget results that were not used since the last call, and all results of functions `cached_by_number`."""
    for cache in list(_caches):
        cache.age()
    for each in _by_number:
        each.cache_clear()


def cached_by_number(max_results: int) -> "Callable[[Callable[..., V]], _lru_cache_wrapper[V]]":
    """`lru_cache` for a module's function of short arguments that users choose; cleared by `age_caches`."""

    def decorate(compute: Callable[..., V]) -> "_lru_cache_wrapper[V]":
        cache = lru_cache(max_results)(compute)
        _by_number.append(cache)
        return cache

    return decorate


def cached_by_bytes(max_bytes: int) -> Callable[[Callable[[K], V]], ByteCache[K, V]]:
    """A decorator that caches the results of a function of one argument, up to `max_bytes` of arguments."""
    return lambda compute: ByteCache(compute, max_bytes)


_ENTRY_BYTES: Final = 64
"""Overhead of an object: of each string, and of each tuple with its slot."""
_TEXT: Final = (str, bytes)


def size_of(value: Any) -> int:
    """The approximate size of a string, bytes, or a Struct or tuple of such."""
    size, unvisited = 0, [value]
    while unvisited:
        each = unvisited.pop()
        size += _ENTRY_BYTES
        if isinstance(each, _TEXT):
            size += len(each)
        elif isinstance(each, tuple):
            unvisited.extend(each)
        elif isinstance(each, Struct):
            unvisited.extend(astuple(each))
    return size
