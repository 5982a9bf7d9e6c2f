"""Gangs that lack members, and which failure to create pods is reported of one.

A changed text is reported with the conditions of all pods of the gang. So a text is kept as long as it says the same:
a LimitRange lists its violations in any order, and a webhook may name a request.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from muster.kube.creation_failures import CreationFailure

SAME_SECONDS: Final = 300
"""How long a text is kept from which the new one differs only in words with digits and their order."""

_WORD: Final = re.compile(r"[^\s,;\[\]]+")
_DIGITS: Final = re.compile(r"\d+")


class IncompleteGangs:
    """Ids of gangs that lack members by namespace, while they do; and namespaces with another one, until the next
    `take_changed` (I11).
    """

    def __init__(self) -> None:
        self._gangs: dict[str, dict[str, None]] = {}
        self._changed: dict[str, None] = {}

    @property
    def by_namespace(self) -> Mapping[str, Collection[str]]:
        """Ids by namespace; a namespace without incomplete gangs has no entry."""
        return self._gangs

    def note(self, gang_id: str, *, lacks: bool) -> None:
        """Whether the gang lacks members now."""
        namespace = gang_id.split("/", 2)[1]
        gangs = self._gangs.get(namespace)
        if lacks:
            if gangs is None:
                gangs = self._gangs[namespace] = {}
            if gang_id not in gangs:
                gangs[gang_id] = None
                self._changed[namespace] = None
        elif gangs is not None and gang_id in gangs:
            del gangs[gang_id]
            if not gangs:
                del self._gangs[namespace]
                self._changed.pop(namespace, None)

    def take_changed(self) -> Collection[str]:
        """Namespaces in which another gang has become incomplete since the last call."""
        changed = self._changed
        self._changed = {}
        return changed


class ReportedFailure(Struct, frozen=True, gc=False):
    """The failure that is reported of a gang: the `last` of its controller, with the `text` of an equal earlier one."""

    last: CreationFailure
    text: str
    text_seconds: int


def failure_to_report(before: ReportedFailure | None, failures: Collection[CreationFailure]) -> ReportedFailure | None:
    """The newest failure of the controller whose failure was reported before, else of any."""
    same = [each for each in failures if before is not None and each.controller == before.last.controller]
    last = max(same or failures, key=lambda each: (each.seen_seconds, each.text), default=None)
    if last is None:
        return None
    if before is not None and same and not _is_news(before, last):
        return ReportedFailure(last, before.text, before.text_seconds)
    return ReportedFailure(last, last.text, last.seen_seconds)


def _is_news(before: ReportedFailure, last: CreationFailure) -> bool:
    """Numbers are: the coordinator reports their changes at a limited rate."""
    if last.seen_seconds - before.text_seconds >= SAME_SECONDS:
        return True
    if _DIGITS.sub("#", before.text) == _DIGITS.sub("#", last.text):
        return True
    return _words(before.text) != _words(last.text)


def _words(text: str) -> list[str]:
    """Words without digits, in the order of the alphabet."""
    return sorted(word for word in _WORD.findall(text) if not _DIGITS.search(word))
