"""Predicts whether new ResourceClaims have the finalizer, as the chart's claimProtectionPolicy adds it at creation."""

from typing import Final

_CLAIMS_PER_TRIAL: Final = 64


class ClaimProtection:
    """Whether to allocate the next claim without adding the finalizer first: one request instead of two, and three if
    the claim turns out to lack it. Follows the claim that was tried last; while claims lack it, one in 64 is tried.
    """

    def __init__(self) -> None:
        self._expected = False
        self._until_trial = _CLAIMS_PER_TRIAL

    def expect(self) -> bool:
        """Whether to take the next claim to have the finalizer."""
        if self._expected:
            return True
        self._until_trial -= 1
        if self._until_trial > 0:
            return False
        self._until_trial = _CLAIMS_PER_TRIAL
        return True

    def observe(self, *, protected: bool) -> None:
        """A claim that was expected to have the finalizer had it, or had not."""
        self._expected = protected
