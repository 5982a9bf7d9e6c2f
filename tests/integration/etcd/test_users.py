"""Setup of users in a real etcd: idempotent, and corrects passwords and permissions."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders.etcd.server import etcd_in
from muster.config.settings import PLAIN_TEXT
from muster.etcd.errors import EtcdUnavailable
from muster.etcd.store import Store
from muster.etcd.users import CannotSetUpUsers, UserSetup, set_up_users
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.ports import free_port

WANTED = UserSetup(user="muster", password="of muster", root_password="of root", prefix="/muster/v1")


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


async def set_up(etcd: EtcdProcess, wanted: UserSetup) -> None:
    await asyncio.to_thread(set_up_users, etcd.endpoint, PLAIN_TEXT, wanted, timeout_seconds=20)


async def put(etcd: EtcdProcess, key: str, user: str | None, password: str | None) -> None:
    store = Store(etcd.endpoint, 5.0, user=user, password=lambda: password)
    try:
        await store.ask(lambda client: client.put(key, "x"))
    finally:
        await store.close()


async def test_user_has_permissions_below_the_prefix_only_with_its_password(etcd: EtcdProcess) -> None:
    await set_up(etcd, WANTED)
    await put(etcd, "/muster/v1/gangs/a", "muster", "of muster")
    for key, user, password in (
        ("/muster/v10", "muster", "of muster"),
        ("/other", "muster", "of muster"),
        ("/muster/v1/gangs/a", "muster", "wrong"),
        ("/muster/v1/gangs/a", None, None),
    ):
        with pytest.raises(EtcdUnavailable):
            await put(etcd, key, user, password)


async def test_repeated_setup_corrects_passwords_and_permissions(etcd: EtcdProcess) -> None:
    await set_up(etcd, WANTED)
    await set_up(etcd, WANTED)
    changed = replace(WANTED, password="another", prefix="/muster/v2")
    await set_up(etcd, changed)
    await put(etcd, "/muster/v2/gangs/a", "muster", "another")
    for key, password in (("/muster/v1/gangs/a", "another"), ("/muster/v2/gangs/a", "of muster")):
        with pytest.raises(EtcdUnavailable):
            await put(etcd, key, "muster", password)


async def test_interrupted_setup_is_completed(etcd: EtcdProcess) -> None:
    store = Store(etcd.endpoint, 5.0)
    await store.ask(lambda client: client.put("/muster/v1/leader", "x"))
    await store.close()
    await set_up(etcd, replace(WANTED, password="of an earlier attempt"))
    await set_up(etcd, WANTED)
    await put(etcd, "/muster/v1/gangs/a", "muster", "of muster")


async def test_wrong_root_password_is_reported_without_passwords(etcd: EtcdProcess) -> None:
    await set_up(etcd, WANTED)
    with pytest.raises(CannotSetUpUsers, match="the given password of root is wrong") as raised:
        await set_up(etcd, replace(WANTED, root_password="not that"))
    assert "not that" not in str(raised.value) and "of " not in repr(WANTED)


async def test_unreachable_etcd_is_named() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(CannotSetUpUsers, match=nobody):
        await asyncio.to_thread(set_up_users, nobody, PLAIN_TEXT, WANTED, timeout_seconds=0)
