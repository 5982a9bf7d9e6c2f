"""What each user asked for and whether it was allowed, counted: which rights are used, and which are missing.

GET /muster-access, for those who may, tells it as a list of Use; DELETE forgets it.
"""

from typing import Final

import msgspec
from msgspec import Struct

from muster.localcluster.apiserver.access.attributes import Asked
from muster.localcluster.apiserver.access.users import User

PATH: Final = "/muster-access"

_MOST_KEPT: Final = 20_000
_ELSEWHERE: Final = "…"


class Use(Struct, frozen=True, omit_defaults=True):
    """How often a user asked for something. `path` only for what is no resource; `namespace` empty: of none, or all."""

    user: str
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    path: str = ""
    name: str = ""
    """Of the object; kept only of what was refused."""
    allowed: bool = True
    count: int = 0


_Key = tuple[str, str, str, str, str]
"""User, verb, group, resource and namespace."""
_RareKey = tuple[str, str, str, str, str, str, str, bool]
"""The same with path and name, and whether it was allowed."""


class AccessRecord:
    """Counts by user, verb, resource and namespace."""

    def __init__(self) -> None:
        self._counts: dict[_Key, int] = {}
        self._rare: dict[_RareKey, int] = {}

    def note(self, user: User, asked: Asked, *, allowed: bool) -> None:
        """Somebody asked. Beyond a bound, where it was is not kept."""
        if not allowed or asked.path:
            self._note_rare(user, asked, allowed=allowed)
            return
        key = (user.name, asked.verb, asked.group, asked.resource, asked.namespace)
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= _MOST_KEPT:
            key = (user.name, asked.verb, asked.group, asked.resource, _ELSEWHERE)
            count = self._counts.get(key, 0)
        self._counts[key] = count + 1

    def _note_rare(self, user: User, asked: Asked, *, allowed: bool) -> None:
        name = "" if allowed else asked.name
        key = (user.name, asked.verb, asked.group, asked.resource, asked.namespace, asked.path, name, allowed)
        if key not in self._rare and len(self._rare) >= _MOST_KEPT:
            key = (user.name, asked.verb, asked.group, asked.resource, _ELSEWHERE, "", "", allowed)
        self._rare[key] = self._rare.get(key, 0) + 1

    def uses(self) -> list[Use]:
        """All that was asked so far."""
        frequent = [Use(*key, count=count) for key, count in self._counts.items()]
        return frequent + [Use(*key, count) for key, count in self._rare.items()]

    def encoded(self) -> bytes:
        """The same as JSON."""
        return msgspec.json.encode(self.uses())

    def forget(self) -> None:
        """Begin anew."""
        self._counts.clear()
        self._rare.clear()
