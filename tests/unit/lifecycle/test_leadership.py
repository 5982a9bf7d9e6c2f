"""Whether this replica leads, by its own clock."""

import asyncio
import time

import pytest

from muster.lifecycle import election
from muster.lifecycle.election import Leadership


async def test_it_is_lost_when_nobody_extends_it() -> None:
    leadership = Leadership()
    leadership.extend(election._now() + 0.05)
    assert leadership.leads
    async with asyncio.timeout(10):
        await leadership.until_lost()
    assert not leadership.leads


async def test_after_a_freeze_it_is_lost_before_anybody_could_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    leadership = Leadership()
    leadership.extend(election._now() + 3600)
    assert leadership.leads
    later = time.clock_gettime(time.CLOCK_MONOTONIC) + 10**9
    monkeypatch.setattr(election, "_now", lambda: later)
    assert not leadership.leads


async def test_what_was_extended_is_kept_and_what_was_lost_may_be_gained_again() -> None:
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
    async with asyncio.timeout(10):
        await leadership.until_leading()


async def test_who_extends_too_late_does_not_lead() -> None:
    leadership = Leadership()
    leadership.extend(election._now() - 1)
    assert not leadership.leads
