"""Audit of requests: counts by user, verb and resource whether they were allowed, to find unused permissions.

GET /muster-access returns a list of Use to authorized users; DELETE clears it.
"""

from typing import Final

import msgspec
from msgspec import Struct

from muster.localcluster.apiserver.access.attributes import Attributes
from muster.localcluster.apiserver.access.users import User

PATH: Final = "/muster-access"

_MAX_ENTRIES: Final = 20_000
_OTHER: Final = "…"


class Use(Struct, frozen=True, omit_defaults=True):
    """Number of requests of a user. `path` only for non-resource URLs; empty `namespace`: none, or all namespaces."""

    user: str
    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    path: str = ""
    name: str = ""
    """Name of the object; only of denied requests."""
    allowed: bool = True
    count: int = 0


_Key = tuple[str, str, str, str, str]
"""User, verb, group, resource and namespace."""
_RareKey = tuple[str, str, str, str, str, str, str, bool]
"""The same with path and name, and the decision."""


class AccessAudit:
    """Counts by user, verb, resource and namespace."""

    def __init__(self) -> None:
        self._counts: dict[_Key, int] = {}
        self._detailed: dict[_RareKey, int] = {}

    def note(self, user: User, attributes: Attributes, *, allowed: bool) -> None:
        """Count a request. Beyond a bound, its namespace is not kept."""
        if not allowed or attributes.path:
            self._count_detailed(user, attributes, allowed=allowed)
            return
        key = (user.name, attributes.verb, attributes.group, attributes.resource, attributes.namespace)
        count = self._counts.get(key, 0)
        if not count and len(self._counts) >= _MAX_ENTRIES:
            key = (user.name, attributes.verb, attributes.group, attributes.resource, _OTHER)
            count = self._counts.get(key, 0)
        self._counts[key] = count + 1

    def _count_detailed(self, user: User, attributes: Attributes, *, allowed: bool) -> None:
        name = "" if allowed else attributes.name
        key = (
            user.name,
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.namespace,
            attributes.path,
            name,
            allowed,
        )
        if key not in self._detailed and len(self._detailed) >= _MAX_ENTRIES:
            key = (
                user.name,
                attributes.verb,
                attributes.group,
                attributes.resource,
                _OTHER,
                "",
                "",
                allowed,
            )
        self._detailed[key] = self._detailed.get(key, 0) + 1

    def uses(self) -> list[Use]:
        """All requests so far."""
        frequent = [Use(*key, count=count) for key, count in self._counts.items()]
        return frequent + [Use(*key, count) for key, count in self._detailed.items()]

    def encoded(self) -> bytes:
        """`uses` as JSON."""
        return msgspec.json.encode(self.uses())

    def clear(self) -> None:
        """Reset all counts."""
        self._counts.clear()
        self._detailed.clear()
