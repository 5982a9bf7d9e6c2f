"""What all replicas agree on about a namespace's quota: reservations, and pods that were let in and are not seen yet.

It is one JSON document, replaced as a whole by compare-and-swap. `seen` is what makes it safe to forget a pod that was
let in: whoever decides by the ledger must have seen all pods up to that revision.
"""

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from muster.gangs.quoting import quoted
from muster.kube.resource_quota import PodUsage

MOST_PASSING: Final = 1000
"""Pods that are at once on their way from the webhook to being seen, which takes some milliseconds."""
MOST_RESERVATIONS: Final = 500
MOST_RETURNED: Final = 15_000
"""Ended pods that are remembered as returned, over all groups. With these bounds a ledger fits into a ConfigMap, which
holds a megabyte: 400 bytes for each of the first two, 15 for these.
"""

_VERSION: Final = 1
Amounts = tuple[tuple[str, int], ...]
"""By the names of quotas, in billionths, sorted."""


class BadLedger(ValueError):
    """A document that this lifecycle cannot read; `is_newer`: because a later one wrote it."""

    def __init__(self, message: str, *, is_newer: bool = False) -> None:
        super().__init__(message)
        self.is_newer = is_newer


class Reservation(Struct, frozen=True, omit_defaults=True):
    """What is kept for a PodGroup.

    `returned` is what pods used that have succeeded; `counted` are marks of those of them that may still be seen.
    `revision` is the PodGroup's when it was made. `idle_since`: from when on no pod of it is live though some have
    ended, in seconds since 1970; 0: that is not so. `finished`: it was given back; a new pod of the group reserves it
    anew.
    """

    uid: str
    total: Amounts
    revision: int = 0
    priority_class: str = ""
    returned: Amounts = ()
    counted: tuple[str, ...] = ()
    idle_since: float = 0.0
    finished: bool = False

    @property
    def left(self) -> dict[str, int]:
        """What is still kept, by the names of quotas."""
        if self.finished:
            return {}
        returned = dict(self.returned)
        return {name: max(0, nanos - returned.get(name, 0)) for name, nanos in self.total}


class Passing(Struct, frozen=True, omit_defaults=True):
    """A pod that was let in. Of pods of one name that were let in shortly one after the other only one can come to be:
    `uids` are theirs, `usage` covers each of them. `since` is when the last one was, in seconds since 1970.
    """

    uids: tuple[str, ...]
    usage: PodUsage
    group: str
    since: float


class Ledger(Struct, frozen=True):
    """The whole of it, by group id and by pod name."""

    reservations: dict[str, Reservation] = {}
    passing: dict[str, Passing] = {}
    seen: int = 0

    @property
    def empty(self) -> bool:
        return not self.reservations and not self.passing


class _Versioned(Struct, frozen=True):
    version: int


class _Document(Struct, frozen=True):
    version: int
    ledger: Ledger


def mark_of(uid: str) -> str:
    """A short mark of a pod that has been counted."""
    return blake2b(uid.encode(), digest_size=6).hexdigest()


def encode_ledger(ledger: Ledger) -> str:
    """As it is kept."""
    return msgspec.json.encode(_Document(_VERSION, ledger)).decode()


def decode_ledger(text: str) -> Ledger:
    """Raises BadLedger."""
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version > _VERSION:
            told = f"a ledger of quota of version {version}, but this lifecycle knows none above {_VERSION}: update it"
            raise BadLedger(told, is_newer=True)
        return msgspec.json.decode(text, type=_Document).ledger
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLedger(f"not a ledger of quota ({error}): {quoted(text[:200])}") from error
