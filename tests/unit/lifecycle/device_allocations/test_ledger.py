"""Arbitration of devices: what is admitted by the ledger and by observed claims."""

import random

import pytest

from builders.lifecycle.allocation_history import (
    REQUEST_SECONDS,
    AllocationWorld,
    claim_object,
    device,
    slice_object,
)
from muster.kube.allocated_devices import DeviceName
from muster.kube.device_objects import DeviceResource
from muster.kube.object_changes import ObjectChanges, Removed
from muster.lifecycle.device_allocations.cache import AllocationCache
from muster.lifecycle.device_allocations.ledger import (
    MAX_CLAIMS,
    WRITE_SECONDS,
    Allocation,
    Arbiter,
    BadLedger,
    Ledger,
    LedgerFull,
    decode_ledger,
    encode_ledger,
)

STEPS = {
    "allocate": 8,
    "allocate and lose the race": 1,
    "store": 6,
    "lose": 1,
    "deallocate": 4,
    "annotate": 2,
    "delete": 1,
    "create": 1,
    "observe": 8,
    "wait": 1,
}
"""Weights of the steps of a history."""


@pytest.mark.parametrize("first", range(0, 4000, 500))
def test_i3_no_device_is_in_two_allocated_claims(first: int) -> None:
    """Replicas lag behind and lose races, admitted updates are lost, claims change and are deleted meanwhile."""
    for seed in range(first, first + 500):
        dice, world = random.Random(seed), AllocationWorld()
        for _ in range(3):
            world.create()
        for _ in range(60):
            [name] = dice.choices(list(STEPS), list(STEPS.values()))
            _take(world, name, dice)
            world.check()
        world.check_free_devices_can_be_allocated()


def _take(world: AllocationWorld, name: str, dice: random.Random) -> None:
    which = dice.randrange(6)
    match name:
        case "allocate" | "allocate and lose the race":
            devices = tuple(dice.randrange(3) for _ in range(dice.choice((1, 1, 2))))
            world.allocate(dice.randrange(2), which, devices, loses_race=name != "allocate")
        case "observe":
            world.observe(which, dice.randint(1, 4))
        case "wait":
            world.wait(dice.choice((1.0, REQUEST_SECONDS / 2, WRITE_SECONDS + 1)))
        case "create":
            world.create()
        case _:
            getattr(world, name)(which)


def observed(*items: DeviceResource | Removed, through: int = 10) -> AllocationCache:
    cache = AllocationCache()
    cache.apply_claims(ObjectChanges("resourceclaims", list(items), through))
    return cache


def wants(uid: str, *names: DeviceName, revision: int = 1, dry_run: bool = False) -> Allocation:
    return Allocation(uid, f"team/{uid}", revision, names, dry_run)


def test_a_device_of_another_claim_is_rejected() -> None:
    arbiter = Arbiter(Ledger(), observed(claim_object("a", 5, (device(0),)), claim_object("b", 6)), 0.0)
    assert arbiter.decide(wants("b", device(0), revision=6)) == (
        'device gpu.example.com/pool/gpu-0 is allocated to ResourceClaim "team/a"; the pod is to be scheduled again, '
        "with other devices"
    )
    assert arbiter.decide(wants("b", device(1), revision=6)) == ""


def test_a_device_that_was_admitted_for_another_claim_is_rejected() -> None:
    cache = observed(claim_object("a", 5), claim_object("b", 6))
    first = Arbiter(Ledger(), cache, 0.0)
    assert first.decide(wants("a", device(0), revision=5)) == ""
    assert first.admitted
    second = Arbiter(decode_ledger(encode_ledger(first.ledger)), cache, 1.0)
    assert '"team/a"' in second.decide(wants("b", device(0), revision=6))
    assert second.decide(wants("a", device(0), revision=5)) == "", "it is its own"


def test_an_entry_ends_when_a_later_version_of_the_claim_is_observed() -> None:
    cache = observed(claim_object("a", 5), claim_object("b", 6))
    first = Arbiter(Ledger(), cache, 0.0)
    first.decide(wants("a", device(0), revision=5))
    cache.apply_claims(ObjectChanges("resourceclaims", [claim_object("a", 11)], 11))  # somebody else changed it
    second = Arbiter(first.ledger, cache, 1.0)
    assert second.decide(wants("b", device(0), revision=6)) == ""
    assert second.ledger.in_flight.keys() == {"b"}
    assert second.ledger.observed_revision == 11


def test_an_entry_ends_with_its_claim() -> None:
    cache = observed(claim_object("a", 5))
    first = Arbiter(Ledger(), cache, 0.0)
    first.decide(wants("a", device(0), revision=5))
    cache.apply_claims(ObjectChanges("resourceclaims", [Removed("a", 12)], 14))
    assert Arbiter(first.ledger, cache, 1.0).ledger == Ledger({}, 12)


def test_devices_with_admin_access_and_shares_are_nobodys_own() -> None:
    admin = claim_object("a", 5, (device(0),), adminAccess=True)
    share = claim_object("b", 6, (device(1),), shareID="0d9c6f3e-1111-4222-8333-444455556666")
    arbiter = Arbiter(Ledger(), observed(admin, share), 0.0)
    assert arbiter.decide(wants("c", device(0), device(1))) == ""


def test_a_dry_run_is_decided_and_not_recorded() -> None:
    arbiter = Arbiter(Ledger(), observed(claim_object("a", 5)), 0.0)
    assert arbiter.decide(wants("a", device(0), revision=5, dry_run=True)) == ""
    assert not arbiter.admitted and arbiter.ledger == Ledger()


def test_devices_that_share_counters_are_rejected_beyond_their_amount() -> None:
    cache = observed(claim_object("a", 5, (device(0),)), claim_object("b", 6), claim_object("c", 7))
    cache.apply_slices(ObjectChanges("resourceslices", [slice_object(4, 2, 1, 2, 1)]))
    arbiter = Arbiter(Ledger(), cache, 0.0)
    assert arbiter.decide(wants("b", device(1), revision=6)) == ""
    rejection = arbiter.decide(wants("c", device(2), revision=7))
    assert rejection.startswith("counter memory of counter set card of pool gpu.example.com/pool does not suffice")
    assert arbiter.decide(wants("c", device(3), revision=7)) == ""


def test_the_ledger_is_bounded() -> None:
    arbiter = Arbiter(Ledger(), observed(through=1), 0.0)
    for number in range(MAX_CLAIMS):
        assert arbiter.decide(wants(f"c{number}", device(number), revision=2)) == ""
    with pytest.raises(LedgerFull, match="1000 ResourceClaims"):
        arbiter.decide(wants("more", device(MAX_CLAIMS), revision=2))
    longest = Arbiter(Ledger(), observed(through=1), 0.0)
    for number in range(MAX_CLAIMS):
        names = tuple(device(10 * number + each) for each in range(10))
        longest.decide(Allocation(f"{number:036}", "n" * 63 + "/" + "c" * 253, 2**62, names))
    assert len(encode_ledger(longest.ledger)) < 1024 * 1024


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":1}', '{"version":2,"ledger":{}}', "[" * 10_000])
def test_a_malformed_ledger_is_quoted(text: str) -> None:
    with pytest.raises(BadLedger) as caught:
        decode_ledger(text)
    assert caught.value.is_newer == ('"version":2' in text)
