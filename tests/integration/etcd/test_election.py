"""Leader election in a real etcd: one leader at a time, re-elected after crashes of candidates and of etcd."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from builders.etcd.server import etcd_in, store_at
from builders.wait import WAIT_SECONDS, block_event_loop, eventually, yield_to_loop
from muster.etcd import election as election_module
from muster.etcd import lease_keepalive
from muster.etcd.election import Election, Leadership
from muster.etcd.store import EtcdUnavailable, Fenced, Store
from muster.localcluster.etcd import EtcdProcess

KEY = "/test/leader"


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


class Candidate:
    """One candidate with its own connections and name."""

    def __init__(self, store: Store, name: str, ttl_seconds: int = 1) -> None:
        self.store, self.name = store, name
        self.election = Election(store, KEY, name, ttl_seconds)
        self.campaign = asyncio.ensure_future(self.election.campaign())

    async def leading(self) -> Leadership:
        async with asyncio.timeout(WAIT_SECONDS):
            return await asyncio.shield(self.campaign)

    async def crash(self) -> None:
        """Stop renewing the lease without revoking it."""
        keeper = (await self.leading()).keeper
        assert keeper is not None
        keeper.cancel()
        self.store.connection.close()


@pytest.fixture
async def candidates(etcd: EtcdProcess) -> AsyncIterator["Candidates"]:
    async with AsyncExitStack() as stack:
        yield Candidates(etcd, stack)


class Candidates:
    """Creates candidates, and stops them after the test."""

    def __init__(self, etcd: EtcdProcess, stack: AsyncExitStack) -> None:
        self._etcd, self._stack = etcd, stack

    async def add(self, name: str, ttl_seconds: int = 1) -> Candidate:
        store = await self._stack.enter_async_context(store_at(self._etcd.endpoint, timeout_seconds=1.0))
        candidate = Candidate(store, name, ttl_seconds)
        self._stack.push_async_callback(self._end, candidate)
        return candidate

    async def _end(self, candidate: Candidate) -> None:
        candidate.campaign.cancel()
        await asyncio.gather(candidate.campaign, return_exceptions=True)
        await candidate.election.resign()


async def leader_of(candidate: Candidate) -> str | None:
    """Identity in the leader key as a candidate reads it."""
    leader = await candidate.election.leader()
    return None if leader is None else leader.identity


async def lost(leadership: Leadership) -> str:
    async with asyncio.timeout(WAIT_SECONDS):
        await leadership.lost.wait()
    assert not leadership.held
    return leadership.loss_reason


async def test_leader_with_a_busy_event_loop_keeps_its_lease(
    candidates: Candidates,
) -> None:
    busy = await candidates.add("busy", ttl_seconds=2)
    leadership = await busy.leading()
    second = await candidates.add("second", ttl_seconds=2)
    for _ in range(2):
        block_event_loop(5)
        assert leadership.held
        await yield_to_loop()
    renewed = leadership.renewed_at
    await eventually(lambda: leadership.renewed_at > renewed)
    assert leadership.held
    assert not second.campaign.done()
    assert await leader_of(second) == "busy"


async def test_stuck_event_loop_loses_its_lease(candidates: Candidates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_keepalive, "MAX_BUSY_SECONDS", 0.5)
    stuck = await candidates.add("stuck", ttl_seconds=2)
    leadership = await stuck.leading()
    block_event_loop(5)
    assert not leadership.held


async def test_only_candidate_becomes_leader(candidates: Candidates) -> None:
    first = await candidates.add("first")
    leadership = await first.leading()
    assert leadership.held
    assert await leader_of(first) == "first"
    await first.store.commit(leadership.fence, {"/test/gangs/a": b""})


async def test_no_leader_before_the_first_campaign(etcd: EtcdProcess) -> None:
    async with store_at(etcd.endpoint) as store:
        assert await Election(store, KEY, "nobody").leader() is None


async def test_leader_outlives_its_ttl(candidates: Candidates) -> None:
    leadership = await (await candidates.add("first")).leading()
    standby = await candidates.add("second")
    for _ in range(4):  # each renewal extends it; four are more than a TTL
        await renewed(leadership)
    assert leadership.held
    assert not standby.campaign.done()


async def renewed(leadership: Leadership) -> None:
    """Wait for the next renewal."""
    before = leadership.safe_until
    await eventually(lambda: leadership.safe_until > before)


async def test_resignation_elects_the_next_candidate_at_once(candidates: Candidates) -> None:
    first = await candidates.add("first", ttl_seconds=60)
    leadership = await first.leading()
    second = await candidates.add("second", ttl_seconds=60)
    await leadership.resign()
    assert leadership.loss_reason == "resigned"
    successor = await second.leading()  # 30 seconds at most, so not by the end of the lease
    assert successor.fence.create_revision > leadership.fence.create_revision
    assert await leader_of(first) == "second"


async def test_i2_former_leader_cannot_write(candidates: Candidates) -> None:
    first = await candidates.add("first")
    leadership = await first.leading()
    second = await candidates.add("second")
    await leadership.resign()
    await second.leading()
    with pytest.raises(Fenced):
        await first.store.commit(leadership.fence, {"/test/gangs/a": b"late"})


async def test_dead_leader_is_replaced_when_its_lease_expires(candidates: Candidates) -> None:
    first = await candidates.add("first")
    before = await first.leading()
    second = await candidates.add("second")
    await first.crash()
    after = await second.leading()
    assert after.fence.create_revision > before.fence.create_revision
    assert not before.held


async def test_revoked_lease_ends_leadership(candidates: Candidates) -> None:
    first = await candidates.add("first", ttl_seconds=60)
    leadership = await first.leading()
    await first.store.ask(lambda client: client.revoke_lease(leadership.lease_id))
    assert "revoked" in await lost(leadership)


async def test_deleted_key_ends_leadership(candidates: Candidates) -> None:
    first = await candidates.add("first", ttl_seconds=60)
    leadership = await first.leading()
    await first.store.ask(lambda client: client.delete(KEY))
    assert await lost(leadership) == "the leader key was removed"


async def test_overwritten_key_ends_leadership(candidates: Candidates) -> None:
    first = await candidates.add("first", ttl_seconds=60)
    leadership = await first.leading()

    def usurp(client: object) -> None:
        client.delete(KEY)  # type: ignore[attr-defined]
        client.put(KEY, "usurper")  # type: ignore[attr-defined]

    await first.store.ask(usurp)
    assert await lost(leadership) in ("'usurper' leads", "the leader key was removed")


async def test_leadership_is_lost_without_etcd_and_regained_with_it(etcd: EtcdProcess, candidates: Candidates) -> None:
    first = await candidates.add("first")
    leadership = await first.leading()
    await etcd.kill()
    assert await lost(leadership) == "the lease was not renewed in time"
    again = asyncio.create_task(first.election.campaign())
    await etcd.start()
    async with asyncio.timeout(WAIT_SECONDS):
        regained = await again
    assert regained.held
    with pytest.raises(Fenced):
        await first.store.commit(leadership.fence, {"/test/gangs/a": b"late"})
    await first.store.commit(regained.fence, {"/test/gangs/a": b"new"})


async def test_leadership_survives_a_short_outage_of_etcd(etcd: EtcdProcess, candidates: Candidates) -> None:
    first = await candidates.add("first", ttl_seconds=30)
    leadership = await first.leading()
    await etcd.kill()
    await etcd.start()
    await renewed(leadership)
    assert leadership.held
    await first.store.commit(leadership.fence, {"/test/gangs/a": b""})


async def test_frozen_etcd_ends_leadership_before_the_lease_expires(etcd: EtcdProcess, candidates: Candidates) -> None:
    first = await candidates.add("first")
    leadership = await first.leading()
    etcd.pause()
    assert await lost(leadership) == "the lease was not renewed in time"
    etcd.resume()


async def test_resumed_process_detects_the_loss_at_the_first_check(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps, as it does for a stopped process; no timer has fired yet."""
    first = await candidates.add("first")
    leadership = await first.leading()
    now = election_module._now
    monkeypatch.setattr(election_module, "_now", lambda: now() + 60)
    assert not leadership.held
    assert leadership.lost.is_set()


LEADS = """
import asyncio, sys
from muster.etcd.election import Election
from muster.etcd.store import Fenced, Store

async def main():
    store = Store(sys.argv[1], 5.0)
    leadership = await Election(store, sys.argv[2], "frozen", 1).campaign()
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, asked.set)
    print("leading", flush=True)
    await asked.wait()
    held = leadership.held
    try:
        await store.commit(leadership.fence, {"/test/gangs/late": b""})
    except Fenced:
        print(f"{held=}, fenced", flush=True)
    await store.close()

asyncio.run(main())
"""


async def test_i2_resumed_leader_writes_nothing(etcd: EtcdProcess, candidates: Candidates) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LEADS, etcd.endpoint, KEY),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await _line_with(process.stdout, "leading") == "leading"
            process.send_signal(signal.SIGSTOP)
            successor = await (await candidates.add("successor")).leading()
            process.stdin.write(b"act\n")
            process.send_signal(signal.SIGCONT)
            assert await _line_with(process.stdout, "fenced") == "held=False, fenced"
            await process.wait()
        assert successor.held
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _line_with(output: asyncio.StreamReader, word: str) -> str:
    """The next line that ends with the word; skips log lines."""
    while line := (await output.readline()).decode():
        if line.rstrip().endswith(word):
            return line.rstrip()
    return "end of output"


async def test_campaign_waits_until_etcd_starts(tmp_path: Path) -> None:
    process = EtcdProcess(tmp_path / "etcd", durable=False)
    async with store_at(process.endpoint, timeout_seconds=1.0) as store:
        candidate = Candidate(store, "first")
        with pytest.raises(EtcdUnavailable):
            await candidate.election.leader()
        async with process:
            assert (await candidate.leading()).held
            await candidate.election.resign()


async def test_many_candidates_lead_one_at_a_time_in_turn(candidates: Candidates) -> None:
    waiting = [await candidates.add(str(number), ttl_seconds=60) for number in range(4)]
    revisions: list[int] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while waiting:
            await asyncio.wait([candidate.campaign for candidate in waiting], return_when=asyncio.FIRST_COMPLETED)
            leaders = [candidate for candidate in waiting if candidate.campaign.done()]
            assert len(leaders) == 1
            leadership = await leaders[0].leading()
            assert await leader_of(leaders[0]) == leaders[0].name
            revisions.append(leadership.fence.create_revision)
            waiting.remove(leaders[0])
            await leadership.resign()
    assert revisions == sorted(set(revisions))
