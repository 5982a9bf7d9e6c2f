"""Which devices may be allocated to a claim: none that another claim has, or is about to get.

An allocation that was admitted is written after that, or never. The ledger has those that are not observed yet. The API
server has an update admitted for the version of the claim that it replaces, and writes it only if the claim still has
that version: once a later version is observed, that says whether the devices were allocated, and the entry ends. All
replicas share the ledger. `observed_revision` makes it safe to drop an entry: a replica that decides by the ledger must
have observed all claims up to that revision.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.gangs.quoting import quoted
from muster.kube.allocated_devices import DeviceName

MAX_CLAIMS: Final = 1000
"""Claims in flight at one time. Observing one takes some milliseconds."""
MAX_DEVICES: Final = 10_000
"""Their devices. A ledger fits into a ConfigMap of 1 MiB: it has 450 bytes for each claim, and 24 for each device."""
WRITE_SECONDS: Final = 90.0
"""After this time an admitted allocation is not written any more: a request lasts a minute at most."""

_NEXT_STEP: Final = "; the pod is to be scheduled again, with other devices"
_VERSION: Final = 1
_DIGEST_BYTES: Final = 10


class BadLedger(ValueError):
    """A document that cannot be decoded; `is_newer`: because a later version of lifecycle wrote it."""

    def __init__(self, message: str, *, is_newer: bool = False) -> None:
        super().__init__(message)
        self.is_newer = is_newer


class LedgerFull(Exception):
    """Too many allocations are in flight; the message says so."""


class InFlight(Struct, frozen=True):
    """An admitted allocation that is not observed yet. `claim` is namespace/name; `revision` is that of the claim
    before it; `devices` are digests; `since` is in seconds since 1970.
    """

    claim: str
    revision: int
    devices: tuple[str, ...]
    since: float


class Ledger(Struct, frozen=True):
    """Allocations in flight by uid of the claim."""

    in_flight: dict[str, InFlight] = {}
    observed_revision: int = 0


class Allocation(Struct, frozen=True):
    """Devices that are to be allocated to a claim, whose version is `revision`. A `dry_run` is not recorded."""

    uid: str
    claim: str
    revision: int
    devices: tuple[DeviceName, ...]
    dry_run: bool = False


class Observed(Protocol):
    """What a replica has observed."""

    @property
    def through(self) -> int:
        """All changes of claims up to this revision are observed."""
        ...

    def version(self, uid: str) -> int:
        """The version of the claim; 0: it is not known."""
        ...

    def removed_at(self, uid: str) -> int:
        """The revision of its deletion, if that was lately."""
        ...

    def owners(self, device: str) -> Mapping[str, str]:
        """Claims, by uid, that have a device."""
        ...

    def exceeded_counters(self, devices: Collection[DeviceName], is_held: Callable[[str], bool]) -> str:
        """The shared counter that these devices would exceed, beside allocated and held ones, in words; empty: none."""
        ...


class Arbiter:
    """Decides about allocations by the ledger, which it changes, and by what is observed."""

    def __init__(self, ledger: Ledger, observed: Observed, now: float) -> None:
        """`now` is in seconds since 1970."""
        self._observed, self._now = observed, now
        self._revision, self._in_flight = ledger.observed_revision, dict(ledger.in_flight)
        self._holders: dict[str, dict[str, str]] = {}
        self.admitted = False
        """An allocation was admitted, so that the ledger is to be written."""
        self._settle()
        for uid, entry in self._in_flight.items():
            self._hold(uid, entry)

    @property
    def ledger(self) -> Ledger:
        """The ledger after the decisions."""
        return Ledger(self._in_flight, self._revision)

    def expired(self) -> list[tuple[str, InFlight]]:
        """Entries that nothing confirmed in time, by uid."""
        return [(uid, entry) for uid, entry in self._in_flight.items() if entry.since + WRITE_SECONDS < self._now]

    def decide(self, allocation: Allocation) -> str:
        """Why the devices may not be allocated to the claim; empty: they may. Raises LedgerFull."""
        devices = {device_digest(name): name for name in allocation.devices}
        for digest, name in devices.items():
            if other := self._holder(digest, allocation.uid):
                return f"device {'/'.join(name)} is allocated to ResourceClaim {quoted(other)}{_NEXT_STEP}"
        if exceeded := self._observed.exceeded_counters(allocation.devices, self._holders.__contains__):
            return f"{exceeded}{_NEXT_STEP}"
        if not allocation.dry_run:
            self._admit(allocation, tuple(devices))
        return ""

    def _holder(self, device: str, uid: str) -> str:
        """Another claim that has the device, or is about to get it; empty: none."""
        for owners in (self._observed.owners(device), self._holders.get(device, {})):
            for other, claim in owners.items():
                if other != uid:
                    return claim
        return ""

    def _admit(self, allocation: Allocation, devices: tuple[str, ...]) -> None:
        before = self._in_flight.get(allocation.uid)
        if before is not None and before.revision >= allocation.revision:  # either of them may be written
            devices = tuple(dict.fromkeys((*before.devices, *devices)))
        revision = max(allocation.revision, before.revision if before is not None else 0)
        entry = InFlight(allocation.claim, revision, devices, self._now)
        others = sum(len(each.devices) for uid, each in self._in_flight.items() if uid != allocation.uid)
        if others + len(devices) > MAX_DEVICES or (before is None and len(self._in_flight) >= MAX_CLAIMS):
            raise LedgerFull(f"allocations of {len(self._in_flight)} ResourceClaims are being written: try again")
        self._in_flight[allocation.uid] = entry
        self._hold(allocation.uid, entry)
        self.admitted = True

    def _hold(self, uid: str, entry: InFlight) -> None:
        for device in entry.devices:
            self._holders.setdefault(device, {})[uid] = entry.claim

    def _settle(self) -> None:
        """Drop entries of claims of which a later version, or the deletion, is observed."""
        for uid, entry in list(self._in_flight.items()):
            if shown := self._shown_at(uid, entry):
                del self._in_flight[uid]
                self._revision = max(self._revision, shown)

    def _shown_at(self, uid: str, entry: InFlight) -> int:
        """The revision of what is observed after the entry's; 0: nothing is."""
        version = self._observed.version(uid)
        if version > entry.revision:
            return version
        if not version and self._observed.through >= entry.revision:
            return self._observed.removed_at(uid) or self._observed.through
        return 0


def without(ledger: Ledger, uids: Iterable[str], observed_revision: int = 0) -> Ledger:
    """The ledger without the entries of these claims. `observed_revision`: of what was read of them."""
    gone = set(uids)
    left = {uid: entry for uid, entry in ledger.in_flight.items() if uid not in gone}
    return replace(ledger, in_flight=left, observed_revision=max(ledger.observed_revision, observed_revision))


def device_digest(name: DeviceName) -> str:
    """A short digest of a device's name."""
    return blake2b("/".join(name).encode(), digest_size=_DIGEST_BYTES).hexdigest()


class _Versioned(Struct, frozen=True):
    version: int


class _Document(Struct, frozen=True):
    version: int
    ledger: Ledger


def encode_ledger(ledger: Ledger) -> str:
    """Encodes a ledger as JSON."""
    return msgspec.json.encode(_Document(_VERSION, ledger)).decode()


def decode_ledger(text: str) -> Ledger:
    """Decodes a ledger. Raises BadLedger."""
    try:
        if (version := msgspec.json.decode(text, type=_Versioned).version) > _VERSION:
            message = f"a ledger of version {version}, but this lifecycle supports at most {_VERSION}: upgrade it"
            raise BadLedger(message, is_newer=True)
        return msgspec.json.decode(text, type=_Document).ledger
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLedger(f"not a ledger of device allocations ({error}): {quoted(text[:200])}") from error
