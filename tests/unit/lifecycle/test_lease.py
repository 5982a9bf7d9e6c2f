"""When a candidate may acquire the lease."""

import msgspec
import pytest

from muster.lifecycle.lease import (
    BadLease,
    LeaseObserver,
    LeaseSpec,
    ObservedLease,
    acquired_lease,
    decode_lease,
    encode_lease,
    released_lease,
)


def lease(version: str = "1", holder: str = "a", seconds: int = 6) -> ObservedLease:
    return ObservedLease(version, LeaseSpec(holder, seconds))


def test_candidates_wait_a_full_duration_from_their_first_observation() -> None:
    vigil = LeaseObserver()
    assert vigil.seconds_left(lease(), 100.0) == 6
    assert vigil.seconds_left(lease(), 104.0) == 2
    assert vigil.seconds_left(lease("2"), 105.0) == 6, "it was renewed"
    assert vigil.seconds_left(lease("2"), 112.0) == 0


def test_a_lease_without_a_holder_may_be_acquired_at_once() -> None:
    assert LeaseObserver().seconds_left(lease(holder=""), 0.0) == 0


@pytest.mark.parametrize(("seconds", "left"), [(-5, 1), (0, 1), (10**9, 3600)])
def test_durations_that_make_no_sense_are_bounded(seconds: int, left: float) -> None:
    assert LeaseObserver().seconds_left(lease(seconds=seconds), 0.0) == left


def test_transitions_increase_only_when_the_holder_changes() -> None:
    first = acquired_lease(None, "a", 6, 0.0)
    renewed = acquired_lease(first, "a", 6, 2.5)
    other = acquired_lease(released_lease(renewed, 3.0), "b", 6, 4.0)
    assert (first.lease_transitions, renewed.lease_transitions, other.lease_transitions) == (0, 0, 1)
    assert (renewed.acquire_time, renewed.renew_time) == ("1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:02.500000Z")
    assert other.acquire_time == "1970-01-01T00:00:04.000000Z"


def test_a_lease_is_read_as_it_was_written() -> None:
    spec = acquired_lease(None, "a", 6, 1.0)
    assert decode_lease(encode_lease("default", "muster-lifecycle", spec, "17")) == ObservedLease("17", spec)
    assert "resourceVersion" not in msgspec.json.decode(encode_lease("default", "x", spec))["metadata"]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"metadata":{},"spec":{"holderIdentity":5}}', b"\xff"])
def test_a_malformed_lease_is_reported_with_a_remedy(body: bytes) -> None:
    with pytest.raises(BadLease, match="delete it"):
        decode_lease(body)
