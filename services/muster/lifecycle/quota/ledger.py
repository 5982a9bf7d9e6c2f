"""The quota ledger of a namespace: reservations, and admitted pods that are not observed yet. All replicas share it.

It is one JSON document, replaced as a whole by compare-and-swap. `observed_revision` makes it safe to drop an admitted
pod: a replica that decides by the ledger must have observed all pods up to that revision.
"""

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct, field

from muster.gangs.quoting import quoted
from muster.kube.resource_quota import PodUsage

MAX_ADMITTED: Final = 1000
"""Pods that are admitted and not observed yet, at one time. Observing one takes some milliseconds."""
MAX_RESERVATIONS: Final = 500
MAX_RETURNED_PODS: Final = 15_000
"""Ended pods that are remembered as returned, over all groups.

With these limits a ledger fits into a ConfigMap of 1 MiB: 400 bytes for each admitted pod and reservation, 15 for each
of these.
"""

_VERSION: Final = 1
Amounts = tuple[tuple[str, int], ...]
"""Amounts in billionths by the resource names of quotas, sorted."""


class BadLedger(ValueError):
    """A document that cannot be decoded; `is_newer`: because a later version of lifecycle wrote it."""

    def __init__(self, message: str, *, is_newer: bool = False) -> None:
        super().__init__(message)
        self.is_newer = is_newer


class Reservation(Struct, frozen=True, omit_defaults=True):
    """The reservation of a PodGroup.

    `returned` is the usage of pods that succeeded; `counted` are digests of those among them that may still exist.
    `revision` is that of the PodGroup at the time of the reservation. `idle_since` is when the last live pod was gone
    and some had ended, in seconds since 1970; 0: not idle. `finished`: it was released; a new pod of the group
    reserves it again.
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
        """The amounts still reserved, by the resource names of quotas."""
        if self.finished:
            return {}
        returned = dict(self.returned)
        return {name: max(0, nanos - returned.get(name, 0)) for name, nanos in self.total}


class AdmittedPod(Struct, frozen=True, omit_defaults=True):
    """An admitted pod that is not observed yet.

    Of several pods with one name admitted in short succession, only one can be created: `uids` are those of all of
    them, `usage` covers each. `since` is when the last one was admitted, in seconds since 1970.
    """

    uids: tuple[str, ...]
    usage: PodUsage
    group: str
    since: float


class Ledger(Struct, frozen=True):
    """Reservations by group id, admitted pods by pod name."""

    reservations: dict[str, Reservation] = {}
    admitted: dict[str, AdmittedPod] = field(default_factory=dict, name="passing")
    observed_revision: int = field(default=0, name="seen")

    @property
    def empty(self) -> bool:
        return not self.reservations and not self.admitted


class _Versioned(Struct, frozen=True):
    version: int


class _Document(Struct, frozen=True):
    version: int
    ledger: Ledger


def pod_digest(uid: str) -> str:
    """Returns a short digest of a pod's uid."""
    return blake2b(uid.encode(), digest_size=6).hexdigest()


def encode_ledger(ledger: Ledger) -> str:
    """Encodes a ledger as JSON."""
    return msgspec.json.encode(_Document(_VERSION, ledger)).decode()


def decode_ledger(text: str) -> Ledger:
    """Decodes a ledger. Raises BadLedger."""
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version > _VERSION:
            message = f"a quota ledger of version {version}, but this lifecycle supports at most {_VERSION}: upgrade it"
            raise BadLedger(message, is_newer=True)
        return msgspec.json.decode(text, type=_Document).ledger
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLedger(f"not a quota ledger ({error}): {quoted(text[:200])}") from error
