"""Rows of one kind for many readers: each reads what has changed since the version that it has.

Rows are encoded once. A reader costs a number, however slow it is: what changes several times before it reads again is
sent to it once.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final

from msgspec import Struct

NOTHING: Final = -1
"""Version of a reader that has read nothing."""
_MAX_REMOVALS: Final = 10_000
"""Removals that are remembered; a reader that is further behind gets all rows again."""


class Row(Struct, gc=False):
    """An encoded row. `namespace`: readers without rights in it are not sent the row; "": only readers with rights in
    the whole cluster are. `redacted`: the row for readers with rights in the namespace alone, if it differs.
    """

    version: int
    namespace: str
    content: bytes
    redacted: bytes = b""

    def for_reader(self, namespaces: frozenset[str] | None) -> bytes:
        """The row for a reader with rights in these namespaces, None for the whole cluster; empty: not for it."""
        if namespaces is None:
            return self.content
        return (self.redacted or self.content) if self.namespace in namespaces else b""


class Change(Struct, frozen=True):
    """Rows that changed, and removed ones by key. `reset`: the rows are all that there are."""

    version: int
    rows: list[Row]
    removed: list[tuple[str, Row]]
    reset: bool


class Feed:
    """Rows by key, in the order of their last change."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called after every change."""
        self.version = 0
        """Version of the last change."""
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._removed: OrderedDict[str, Row] = OrderedDict()
        self._forgotten = 0
        """Version of the last removal that is not remembered."""
        self._on_change = on_change

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self) -> list[str]:
        """The keys of all rows."""
        return list(self._rows)

    def version_of(self, key: str) -> int:
        """Version of a row; 0 if there is none."""
        row = self._rows.get(key)
        return row.version if row is not None else 0

    def put(self, key: str, namespace: str, content: bytes, redacted: bytes = b"") -> None:
        """Add or replace a row; one that is equal changes nothing."""
        before = self._rows.get(key)
        if before is not None and (before.content, before.namespace, before.redacted) == (content, namespace, redacted):
            return
        self.version += 1
        self._removed.pop(key, None)
        self._rows[key] = Row(self.version, namespace, content, redacted)
        self._rows.move_to_end(key)
        self._on_change()

    def remove(self, key: str) -> None:
        """Remove a row, if it exists."""
        row = self._rows.pop(key, None)
        if row is None:
            return
        self.version += 1
        self._removed[key] = Row(self.version, row.namespace, b"")
        if len(self._removed) > _MAX_REMOVALS:
            self._forgotten = self._removed.popitem(last=False)[1].version
        self._on_change()

    def since(self, version: int) -> Change:
        """Changes after the version that a reader has; costs as much as there are."""
        if version == NOTHING or version < self._forgotten:
            return Change(self.version, list(self._rows.values()), [], reset=True)
        rows = [row for _, row in _newer(self._rows, version)]
        return Change(self.version, rows[::-1], list(_newer(self._removed, version)), reset=False)


def _newer(rows: OrderedDict[str, Row], version: int) -> Iterator[tuple[str, Row]]:
    """Rows after that version, the newest first; they are in the order of versions."""
    return takewhile(lambda item: item[1].version > version, reversed(rows.items()))
