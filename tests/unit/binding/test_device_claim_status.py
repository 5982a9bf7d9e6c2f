"""Rules of writes to ResourceClaims: which write a state needs, and what it changes."""

from typing import Any

import msgspec
import pytest

from muster.binding.device_claim_status import (
    FINALIZER,
    BadDeviceClaim,
    ClaimRejected,
    Consumer,
    DeviceClaimState,
    Step,
    WantedClaim,
    allocated_claim,
    deallocated_claim,
    first_allocation_patch,
    next_step,
    read_allocation,
    read_claim,
    released_claim,
    reserved_claim,
    unreserved,
)

JSON = dict[str, Any]
OURS, OTHERS = "uid-a", "uid-z"
UNKNOWN = {"fromTheFuture": {"a": [1]}}


def user(uid: str, **more: Any) -> JSON:
    return {"resource": "pods", "name": uid.removeprefix("uid-"), "uid": uid, **more}


def allocation(*devices: str) -> JSON:
    results = [{"request": "r", "driver": "d", "pool": "p", "device": each, **UNKNOWN} for each in devices]
    return {"devices": {"results": results, **UNKNOWN}, **UNKNOWN}


def claim(*devices: str, users: tuple[str, ...] = (), **metadata: Any) -> JSON:
    """A claim as the API server returns it; without devices it is not allocated."""
    status = {"allocation": allocation(*devices)} if devices else {}
    reserved = {"reservedFor": [user(uid, **UNKNOWN) for uid in users]} if users else {}
    known = {"metadata": {"name": "c", "uid": "uid-c", "finalizers": [FINALIZER], **metadata, **UNKNOWN}}
    return {**known, "spec": UNKNOWN, "status": {**status, **reserved, **UNKNOWN}, **UNKNOWN}


def read(body: JSON) -> DeviceClaimState:
    return read_claim(msgspec.json.encode(body))


def wanted(*devices: str) -> WantedClaim:
    if not devices:
        return WantedClaim("ml", "c", "uid-c")
    return WantedClaim("ml", "c", "uid-c", *read_allocation(msgspec.json.encode(allocation(*devices))))


def decoded(body: bytes | None) -> Any:
    assert body is not None
    return msgspec.json.decode(body)


@pytest.mark.parametrize(
    ("found", "devices", "step"),
    [
        pytest.param(claim(finalizers=["other"]), ["a"], Step.PROTECT, id="no finalizer"),
        pytest.param(claim(finalizers=None), ["a"], Step.PROTECT, id="no finalizers"),
        pytest.param(claim(), ["a"], Step.ALLOCATE, id="not allocated"),
        pytest.param({**claim(), "status": None}, ["a"], Step.ALLOCATE, id="no status"),
        pytest.param(claim("a"), ["a"], Step.RESERVE, id="allocated"),
        pytest.param(claim("a", "b", users=(OTHERS,)), ["b", "a"], Step.RESERVE, id="allocated in another order"),
        pytest.param(claim("a", users=(OTHERS,)), [], Step.RESERVE, id="allocated as others wanted"),
        pytest.param(claim("a", users=(OTHERS, OURS)), ["a"], Step.DONE, id="reserved"),
        pytest.param(claim("a", users=(OURS,), finalizers=[]), [], Step.DONE, id="reserved, without finalizer"),
        pytest.param(claim("b"), ["a"], Step.DEALLOCATE, id="other devices, unused"),
        pytest.param(claim("a", "b", users=(OURS,)), ["a"], Step.DEALLOCATE, id="other devices for the pod"),
    ],
)
def test_the_next_step(found: JSON, devices: list[str], step: Step) -> None:
    assert next_step(read(found), wanted(*devices), [OURS]) is step


@pytest.mark.parametrize(
    ("found", "devices", "problem"),
    [
        (claim(uid="uid-new"), ["a"], "was replaced by another claim of this name"),
        (claim(deletionTimestamp="2026-01-01T00:00:00Z"), ["a"], "is being deleted"),
        (claim(), [], "is not allocated, and no devices were chosen for it"),
        (claim("b", users=(OURS, OTHERS)), ["a"], r'is allocated to other devices \(d/p/b\) and used by pod "z"'),
        (claim("b", users=tuple(f"uid-{n}" for n in range(9))), ["a"], 'used by pod "0", pod "1", pod "2" and 6 more'),
    ],
)
def test_claims_that_cannot_be_used(found: JSON, devices: list[str], problem: str) -> None:
    with pytest.raises(ClaimRejected, match=problem):
        next_step(read(found), wanted(*devices), [OURS])


def test_other_consumers_than_pods_are_named() -> None:
    found = claim("b")
    found["status"]["reservedFor"] = [{"apiGroup": "x", "resource": "podgroups", "name": "g", "uid": "u"}]
    with pytest.raises(ClaimRejected, match='used by "podgroups/g"'):
        next_step(read(found), wanted("a"), [OURS])


def test_the_allocation_and_the_reservations_are_written_at_once() -> None:
    found = claim()
    written = decoded(allocated_claim(read(found), wanted("a"), [Consumer("pods", "a", OURS)], now=0))
    status = {"allocation": {"allocationTimestamp": "1970-01-01T00:00:00Z", **allocation("a")}}
    assert written == {**found, "status": {**status, "reservedFor": [user(OURS)], **UNKNOWN}}


def test_a_new_claim_is_allocated_only_if_it_is_as_expected() -> None:
    body = decoded(first_allocation_patch(wanted("a"), [Consumer("pods", "a", OURS)], now=0))
    assert {each["path"]: each["value"] for each in body if each["op"] == "test"} == {
        "/metadata/uid": "uid-c",
        "/metadata/deletionTimestamp": None,
        "/metadata/finalizers": [FINALIZER],
        "/status": {},
    }
    status = {"allocation": {"allocationTimestamp": "1970-01-01T00:00:00Z", **allocation("a")}}
    assert body[-1] == {"op": "replace", "path": "/status", "value": {**status, "reservedFor": [user(OURS)]}}


def test_reservations_are_added() -> None:
    found = claim("a", users=(OTHERS,))
    state = read(found)
    assert unreserved(state, [OTHERS, OURS]) == [OURS]
    status = {**found["status"], "reservedFor": [*found["status"]["reservedFor"], user(OURS)]}
    assert decoded(reserved_claim(state, [Consumer("pods", "a", OURS)])) == {**found, "status": status}


def test_a_deallocated_claim_keeps_what_does_not_depend_on_devices() -> None:
    found = claim("a", users=(OURS,))
    found["status"]["devices"] = [{"device": "a"}]
    assert decoded(deallocated_claim(read(found))) == {**found, "status": UNKNOWN}


@pytest.mark.parametrize(
    ("found", "allocated", "status"),
    [
        pytest.param(claim("a", users=(OURS,)), ["a"], {}, id="the last reservation"),
        pytest.param(claim("a", users=(OURS,)), [], {"allocation": allocation("a")}, id="allocated by others"),
        pytest.param(claim("b", users=(OURS,)), ["a"], {"allocation": allocation("b")}, id="allocated anew"),
        pytest.param(claim("a"), ["a"], {}, id="no reservation"),
        pytest.param(
            claim("a", users=(OURS, OTHERS)),
            ["a"],
            {"allocation": allocation("a"), "reservedFor": [user(OTHERS, **UNKNOWN)]},
            id="others use it",
        ),
    ],
)
def test_reservations_are_removed(found: JSON, allocated: list[str], status: JSON) -> None:
    written = decoded(released_claim(read(found), {OURS}, wanted(*allocated).devices))
    written["status"] = {name: value for name, value in written["status"].items() if value != []}
    assert written == {**found, "status": {**status, **UNKNOWN}}


def test_nothing_is_written_without_a_reservation() -> None:
    assert released_claim(read(claim("a", users=(OTHERS,))), {OURS}, wanted("a").devices) is None
    assert released_claim(read(claim("b")), {OURS}, wanted("a").devices) is None
    assert released_claim(read(claim()), {OURS}, wanted("a").devices) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"metadata": {"uid": 1}}',
        b'{"metadata": {}, "status": {"allocation": 1}}',
        b'{"metadata": {}, "spec": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_an_unreadable_claim_is_an_error(body: bytes) -> None:
    with pytest.raises(BadDeviceClaim, match="cannot be read"):
        read_claim(body)
