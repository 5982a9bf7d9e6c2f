"""Reads and writes Leases of coordination.k8s.io for leader election. Pure: clock readings are arguments.

Candidates never compare clocks with the leader. For a candidate, a lease has expired when the lease duration has
passed on its own clock since it first observed the lease unchanged.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.gangs.quoting import quoted
from muster.kube.json_repair import repaired
from muster.kube.objects import UNREADABLE

_MAX_SECONDS: Final = 3600
"""Limit on a lease's duration: a mistyped one must not prevent leadership for long."""


class BadLease(ValueError):
    """A malformed Lease."""


class LeaseSpec(Struct, rename="camel", frozen=True, omit_defaults=True):
    """spec of a Lease. An empty holder means no leader."""

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


class ObservedLease(Struct, frozen=True):
    """A Lease as read; `version` is its resourceVersion, for compare-and-swap."""

    version: str
    spec: LeaseSpec


def decode_lease(body: bytes) -> ObservedLease:
    """Decodes a Lease. Raises BadLease."""
    try:
        lease = msgspec.json.decode(repaired(body), type=_Lease)
    except UNREADABLE as error:
        shown = quoted(body[:256].decode(errors="replace"))
        raise BadLease(f"not a Lease ({error}): {shown}; delete it; it will be recreated") from error
    return ObservedLease(lease.metadata.resource_version, lease.spec)


def encode_lease(namespace: str, name: str, spec: LeaseSpec, version: str = "") -> bytes:
    """Encodes a Lease; without a version it is a new one."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if version:
        metadata["resourceVersion"] = version
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    return msgspec.json.encode(lease)


def acquired_lease(before: LeaseSpec | None, identity: str, seconds: int, wall_clock: float) -> LeaseSpec:
    """Returns the lease as acquired by `identity`, or renewed if `identity` holds it already."""
    now = _micro_time(wall_clock)
    if before is not None and before.holder_identity == identity:
        return replace(before, lease_duration_seconds=seconds, renew_time=now)
    transitions = 0 if before is None else (before.lease_transitions or 0) + 1
    return LeaseSpec(identity, seconds, now, now, transitions)


def released_lease(spec: LeaseSpec, wall_clock: float) -> LeaseSpec:
    """Returns the lease without a holder, so that other candidates need not wait for its expiry."""
    return replace(spec, holder_identity="", lease_duration_seconds=1, renew_time=_micro_time(wall_clock))


class LeaseObserver:
    """Measures for a candidate how long the lease has been unchanged."""

    def __init__(self) -> None:
        self._seen: ObservedLease | None = None
        self._since = 0.0

    def seconds_left(self, lease: ObservedLease, clock: float) -> float:
        """Returns how long others must still wait, at most; 0: the lease is free. `clock` is a monotonic clock."""
        if self._seen is None or (self._seen.version, self._seen.spec) != (lease.version, lease.spec):
            self._seen, self._since = lease, clock
        if not lease.spec.holder_identity:
            return 0.0
        seconds = min(max(lease.spec.lease_duration_seconds or 1, 1), _MAX_SECONDS)
        return max(0.0, self._since + seconds - clock)


def _micro_time(wall_clock: float) -> str:
    return datetime.fromtimestamp(wall_clock, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
