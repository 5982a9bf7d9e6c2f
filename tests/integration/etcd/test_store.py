"""Records in a real etcd: atomic commits by the leader only, and recovery after failures of etcd."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.etcd.server import etcd_in, eventually_healthy, fence_of, put, store_at
from builders.wait import WAIT_SECONDS
from muster.etcd.store import BadEndpoints, EtcdUnavailable, Fence, Fenced, Store, TooLarge
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.ports import free_port


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


@pytest.fixture
async def store(etcd: EtcdProcess) -> AsyncIterator[Store]:
    async with store_at(etcd.endpoint) as opened:
        yield opened


async def test_commit_is_atomic(store: Store) -> None:
    fence = await fence_of(store)
    await store.commit(fence, {"/test/gangs/a": b"1", "/test/gangs/b": b"\x00\xff"})
    await store.commit(fence, {"/test/gangs/c": b"3"}, ["/test/gangs/a"])
    assert await store.get_prefix("/test/gangs/") == [("/test/gangs/b", b"\x00\xff"), ("/test/gangs/c", b"3")]


async def test_i2_former_leader_cannot_commit(store: Store) -> None:
    fence = await fence_of(store)
    await store.commit(fence, {"/test/gangs/a": b"old"})
    await store.ask(lambda client: client.delete(fence.key))
    successor = await fence_of(store)
    with pytest.raises(Fenced, match="'/test/leader'"):
        await store.commit(fence, {"/test/gangs/b": b"late"}, ["/test/gangs/a"])
    await store.commit(successor, {"/test/gangs/c": b"new"})
    assert await store.get_prefix("/test/gangs/") == [("/test/gangs/a", b"old"), ("/test/gangs/c", b"new")]


async def test_fence_without_its_key_does_not_hold(store: Store) -> None:
    with pytest.raises(Fenced):
        await store.commit(Fence("/test/leader", 1), {"/test/gangs/a": b""})


async def test_empty_commit_checks_the_fence(store: Store) -> None:
    fence = await fence_of(store)
    await store.commit(fence, {}, ())
    with pytest.raises(Fenced):
        await store.commit(Fence(fence.key, fence.create_revision + 1), {}, ())


async def test_key_both_put_and_deleted_is_an_error(store: Store) -> None:
    with pytest.raises(ValueError, match="/test/gangs/a"):
        await store.commit(Fence("/test/leader", 1), {"/test/gangs/a": b""}, ["/test/gangs/a"])


async def test_records_beyond_a_page_are_read_in_order(store: Store) -> None:
    fence = await fence_of(store)
    expected = [(f"/test/gangs/{number:04d}", str(number).encode()) for number in range(600)]
    for start in range(0, 600, 100):
        await store.commit(fence, dict(expected[start : start + 100]))
    await put(store, "/test/gangs0", "not below the prefix")
    assert await store.get_prefix("/test/gangs/") == expected


async def test_all_pages_are_of_one_revision(store: Store) -> None:
    fence = await fence_of(store)
    before = {f"/test/gangs/{number:04d}": b"before" for number in range(600)}
    for start in range(0, 600, 100):
        await store.commit(fence, dict(list(before.items())[start : start + 100]))

    async def overwrite() -> None:
        while True:
            await store.commit(fence, {"/test/gangs/0000": b"after", "/test/gangs/0599": b"after"})
            await store.commit(fence, {"/test/gangs/0000": b"before", "/test/gangs/0599": b"before"})

    writer = asyncio.create_task(overwrite())
    for _ in range(20):
        found = dict(await store.get_prefix("/test/gangs/"))
        assert len(found) == 600
        assert found["/test/gangs/0000"] == found["/test/gangs/0599"]
    assert not writer.done()
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)


@pytest.mark.parametrize(
    "puts",
    [
        pytest.param({f"/test/gangs/{number}": b"" for number in range(129)}, id="operations"),
        pytest.param({"/test/gangs/a": b"x" * 1_600_000}, id="bytes"),
        pytest.param({"/test/gangs/a": b"x" * 9_000_000}, id="many-bytes"),
    ],
)
async def test_too_large_commit_is_rejected(store: Store, puts: dict[str, bytes]) -> None:
    fence = await fence_of(store)
    with pytest.raises(TooLarge):
        await store.commit(fence, puts)
    assert await store.get_prefix("/test/gangs/") == []
    assert await store.healthy()


async def test_store_recovers_after_a_crash_of_etcd(etcd: EtcdProcess, store: Store) -> None:
    fence = await fence_of(store)
    await store.commit(fence, {"/test/gangs/a": b"1"})
    await etcd.kill()
    with pytest.raises(EtcdUnavailable):
        await store.get_prefix("/test/gangs/")
    with pytest.raises(EtcdUnavailable) as caught:
        await store.commit(fence, {"/test/gangs/b": b"2"})
    assert caught.value.outcome_known
    assert not await store.healthy()
    await etcd.start()
    await eventually_healthy(store)
    await store.commit(fence, {"/test/gangs/b": b"2"})
    assert await store.get_prefix("/test/gangs/") == [("/test/gangs/a", b"1"), ("/test/gangs/b", b"2")]


async def test_frozen_etcd_fails_calls_at_their_deadline(etcd: EtcdProcess) -> None:
    async with store_at(etcd.endpoint, timeout_seconds=0.3) as impatient:
        fence = await fence_of(impatient)
        etcd.pause()
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(EtcdUnavailable) as caught:
                await impatient.commit(fence, {"/test/gangs/a": b"perhaps"})
            assert not caught.value.outcome_known
            with pytest.raises(EtcdUnavailable):
                await impatient.get_prefix("/test/")
            assert not await impatient.healthy()
        etcd.resume()
        await eventually_healthy(impatient)
        await impatient.commit(fence, {"/test/gangs/a": b"again"})
        assert await impatient.get_prefix("/test/gangs/") == [("/test/gangs/a", b"again")]


async def test_dead_endpoint_is_skipped(etcd: EtcdProcess) -> None:
    async with store_at(f"127.0.0.1:{free_port()},{etcd.endpoint}") as store:
        fence = await fence_of(store)
        await store.commit(fence, {"/test/gangs/a": b"1"})
        assert await store.get_prefix("/test/gangs/") == [("/test/gangs/a", b"1")]


async def test_frozen_endpoint_fails_over_to_the_next(etcd: EtcdProcess, tmp_path: Path) -> None:
    """Two independent etcds, to see which one is used."""
    async with etcd_in(tmp_path / "second") as second:
        async with store_at(second.endpoint) as other:
            fence = await fence_of(other)
        async with store_at(f"{etcd.endpoint},{second.endpoint}", timeout_seconds=1.0) as store:
            await put(store, "/test/here", "first")
            etcd.pause()
            await store.commit(fence, {"/test/gangs/a": b"1"})
            assert await store.get_prefix("/test/gangs/") == [("/test/gangs/a", b"1")]
            etcd.resume()


async def test_fenced_after_an_unknown_outcome_stays_unknown(etcd: EtcdProcess, tmp_path: Path) -> None:
    async with etcd_in(tmp_path / "second") as second, store_at(etcd.endpoint) as first_only:
        fence = await fence_of(first_only)
        async with store_at(f"{etcd.endpoint},{second.endpoint}", timeout_seconds=1.0) as store:
            await store.commit(fence, {})
            etcd.pause()
            with pytest.raises(EtcdUnavailable) as caught:  # the second one knows no leader
                await store.commit(fence, {"/test/gangs/a": b"1"})
            assert not caught.value.outcome_known
            etcd.resume()


async def test_restart_of_etcd_that_drops_all_tokens_is_transparent(etcd: EtcdProcess) -> None:
    async with store_at(etcd.endpoint) as anybody:

        def protect(client: object) -> None:
            from muster.etcd.etcd3_import import etcdrpc

            auth = etcdrpc.AuthStub(client.channel)  # type: ignore[attr-defined]
            auth.RoleAdd(etcdrpc.AuthRoleAddRequest(name="root"))
            auth.UserAdd(etcdrpc.AuthUserAddRequest(name="root", password="secret"))
            auth.UserGrantRole(etcdrpc.AuthUserGrantRoleRequest(user="root", role="root"))
            auth.AuthEnable(etcdrpc.AuthEnableRequest())

        await anybody.ask(protect)
        with pytest.raises(EtcdUnavailable, match=r"user name is empty|permission denied|invalid auth"):
            await anybody.get_prefix("/test/")
    root = Store(etcd.endpoint, 5.0, user="root", password=lambda: "secret")
    try:
        fence = await fence_of(root)
        await root.commit(fence, {"/test/gangs/a": b"1"})
        await etcd.kill()
        await etcd.start()
        await eventually_healthy(root)
        await root.commit(fence, {"/test/gangs/a": b"2"})
        assert await root.get_prefix("/test/gangs/") == [("/test/gangs/a", b"2")]
    finally:
        await root.close()


@pytest.mark.parametrize("endpoints", ["", "localhost", "http://localhost:2379", "localhost:2379,", "localhost:etcd"])
def test_invalid_endpoints_are_quoted(endpoints: str) -> None:
    with pytest.raises(BadEndpoints, match="without a scheme") as caught:
        Store(endpoints)
    assert repr(endpoints) in str(caught.value)
