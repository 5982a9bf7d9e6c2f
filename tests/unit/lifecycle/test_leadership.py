"""Leadership by the replica's own clock."""

import asyncio
import time

import pytest

from builders.wait import WAIT_SECONDS
from muster.lifecycle import election
from muster.lifecycle.election import Leadership


async def test_leadership_is_lost_unless_extended() -> None:
    leadership = Leadership()
    leadership.extend(election._now() + 0.05)
    assert leadership.leads
    async with asyncio.timeout(WAIT_SECONDS):
        await leadership.until_lost()
    assert not leadership.leads


async def test_after_a_freeze_leadership_is_lost_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    leadership = Leadership()
    leadership.extend(election._now() + 3600)
    assert leadership.leads
    later = time.clock_gettime(time.CLOCK_MONOTONIC) + 10**9
    monkeypatch.setattr(election, "_now", lambda: later)
    assert not leadership.leads


async def test_extended_leadership_is_kept_and_lost_leadership_can_be_regained() -> None:
    leadership = Leadership()
    leadership.extend(election._now() + 0.01)
    leadership.extend(election._now() + 3600)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await leadership.until_lost()
    assert leadership.leads
    leadership.lose("the test says so")
    assert not leadership.leads
    leadership.extend(election._now() + 3600)
    async with asyncio.timeout(WAIT_SECONDS):
        await leadership.until_leading()


async def test_extending_too_late_does_not_lead() -> None:
    leadership = Leadership()
    leadership.extend(election._now() - 1)
    assert not leadership.leads
