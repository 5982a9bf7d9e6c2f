"""EtcdRecords, which end-to-end and chaos tests use, sees every change of a record in order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from builders.etcd.records import PREFIX, EtcdRecords
from builders.etcd.server import etcd_in, eventually_healthy, fence_of, store_at
from builders.wait import eventually
from muster.coordinator.v1.record_pb2 import GangRecord

PERMIT = GangRecord(state=GangRecord.STATE_BINDING).SerializeToString()


@asynccontextmanager
async def following(records: EtcdRecords) -> AsyncIterator[None]:
    task = asyncio.create_task(records.follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_early_read_of_a_permit_hides_no_earlier_change(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []
    async with etcd_in(tmp_path) as etcd, store_at(etcd.endpoint) as store:
        records = EtcdRecords(etcd.endpoint, lambda gang, record: seen.append((gang, record is not None)))
        fence = await fence_of(store)
        await store.commit(fence, {f"{PREFIX}a": PERMIT})
        async with following(records):
            await eventually(lambda: "a" in records.present)
        await store.commit(fence, {}, [f"{PREFIX}a"])
        await store.commit(fence, {f"{PREFIX}b": PERMIT})
        assert await records.permit("b", seconds=30) is not None

        async with following(records):
            await eventually(lambda: "b" in records.present)
        assert seen == [("a", True), ("a", False), ("b", True)]
        assert [*records.present] == await records.stored() == ["b"]


async def test_deletions_while_etcd_restarts_are_seen(tmp_path: Path) -> None:
    async with etcd_in(tmp_path) as etcd, store_at(etcd.endpoint) as store:
        records = EtcdRecords(etcd.endpoint, lambda _gang, _record: None)
        fence = await fence_of(store)
        await store.commit(fence, {f"{PREFIX}a": PERMIT, f"{PREFIX}b": PERMIT})
        async with following(records):
            await eventually(lambda: len(records.present) == 2)
            await etcd.kill()
            await etcd.start()
            await eventually_healthy(store)
            await store.commit(fence, {}, [f"{PREFIX}a", f"{PREFIX}b"])
            await eventually(lambda: not records.present)
        assert await records.stored() == []
