"""Whether new claims are taken to have the finalizer."""

from muster.binding.claim_protection import ClaimProtection


def trials(protection: ClaimProtection, claims: int, *, protected: bool) -> int:
    """How many of the next claims were taken to have it. `protected`: whether they have."""
    count = 0
    for _ in range(claims):
        if protection.expect():
            count += 1
            protection.observe(protected=protected)
    return count


def test_one_claim_in_64_is_tried_while_they_lack_the_finalizer() -> None:
    protection = ClaimProtection()
    assert trials(protection, 63, protected=False) == 0
    assert trials(protection, 640, protected=False) == 10


def test_all_claims_are_tried_as_long_as_they_have_it() -> None:
    protection = ClaimProtection()
    assert trials(protection, 64 + 100, protected=True) == 101
    assert trials(protection, 64, protected=False) == 1
