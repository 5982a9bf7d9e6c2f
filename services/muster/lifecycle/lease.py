"""A Lease of coordination.k8s.io as candidates for leadership read and write it. Pure: clocks come in as values.

Candidates never compare clocks with a leader. For a candidate, a lease has run out when its own clock went on for the
duration of the lease since it first saw the lease as it is.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.gangs.quoting import quoted

_LONGEST_SECONDS: Final = 3600
"""A duration beyond that is somebody's mistake, and must not keep everybody from leading."""


class BadLease(ValueError):
    """The Lease is not one that a candidate could have written."""


class LeaseSpec(Struct, rename="camel", frozen=True, omit_defaults=True):
    """spec of a Lease. An empty holder: nobody leads."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _Lease(Struct, frozen=True):
    metadata: _Metadata
    spec: LeaseSpec = LeaseSpec()


class Seen(Struct, frozen=True):
    """A Lease as it was found; `version` is the resourceVersion that a change of it has to name."""

    version: str
    spec: LeaseSpec


def decode_lease(body: bytes) -> Seen:
    """Read a Lease. Raises BadLease."""
    try:
        lease = msgspec.json.decode(body, type=_Lease)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = quoted(body[:256].decode(errors="replace"))
        raise BadLease(f"not a Lease ({error}): {shown}; delete it, and it is made anew") from error
    return Seen(lease.metadata.resource_version, lease.spec)


def encode_lease(namespace: str, name: str, spec: LeaseSpec, version: str = "") -> bytes:
    """The Lease to be written; without a version it is a new one."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if version:
        metadata["resourceVersion"] = version
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    return msgspec.json.encode(lease)


def taken(before: LeaseSpec | None, identity: str, seconds: int, wall_clock: float) -> LeaseSpec:
    """The lease once `identity` has it, whoever had it before; renewed if that was itself."""
    now = _micro_time(wall_clock)
    if before is not None and before.holder_identity == identity:
        return replace(before, lease_duration_seconds=seconds, renew_time=now)
    transitions = 0 if before is None else (before.lease_transitions or 0) + 1
    return LeaseSpec(identity, seconds, now, now, transitions)


def given_back(spec: LeaseSpec, wall_clock: float) -> LeaseSpec:
    """The lease once its holder has left, so that nobody has to wait until it runs out."""
    return replace(spec, holder_identity="", lease_duration_seconds=1, renew_time=_micro_time(wall_clock))


class Vigil:
    """A candidate's memory of the lease: since when it has been as it is."""

    def __init__(self) -> None:
        self._seen: Seen | None = None
        self._since = 0.0

    def seconds_left(self, lease: Seen, clock: float) -> float:
        """For how long others have to wait yet, at the most; 0: it may be taken. `clock` only has to go on evenly."""
        if self._seen is None or (self._seen.version, self._seen.spec) != (lease.version, lease.spec):
            self._seen, self._since = lease, clock
        if not lease.spec.holder_identity:
            return 0.0
        seconds = min(max(lease.spec.lease_duration_seconds or 1, 1), _LONGEST_SECONDS)
        return max(0.0, self._since + seconds - clock)


def _micro_time(wall_clock: float) -> str:
    return datetime.fromtimestamp(wall_clock, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
