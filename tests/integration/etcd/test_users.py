"""Users of a real etcd: made once, left alone when they are right, mended when they are not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders.etcd.server import etcd_in
from muster.config.settings import PLAIN_TEXT
from muster.etcd.errors import EtcdUnavailable
from muster.etcd.store import Store
from muster.etcd.users import CannotPrepare, Wanted, prepare
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.ports import free_port

WANTED = Wanted(user="muster", password="of muster", root_password="of root", prefix="/muster/v1")


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


async def prepared(etcd: EtcdProcess, wanted: Wanted) -> None:
    await asyncio.to_thread(prepare, etcd.endpoint, PLAIN_TEXT, wanted, timeout_seconds=20)


async def put(etcd: EtcdProcess, key: str, user: str | None, password: str | None) -> None:
    store = Store(etcd.endpoint, 5.0, user=user, password=lambda: password)
    try:
        await store.ask(lambda client: client.put(key, "x"))
    finally:
        await store.close()


async def test_the_user_has_rights_below_the_prefix_and_nobody_has_any_without_a_password(etcd: EtcdProcess) -> None:
    await prepared(etcd, WANTED)
    await put(etcd, "/muster/v1/gangs/a", "muster", "of muster")
    for key, user, password in (
        ("/muster/v10", "muster", "of muster"),
        ("/other", "muster", "of muster"),
        ("/muster/v1/gangs/a", "muster", "wrong"),
        ("/muster/v1/gangs/a", None, None),
    ):
        with pytest.raises(EtcdUnavailable):
            await put(etcd, key, user, password)


async def test_it_may_be_repeated_and_mends_passwords_and_rights(etcd: EtcdProcess) -> None:
    await prepared(etcd, WANTED)
    await prepared(etcd, WANTED)
    changed = replace(WANTED, password="another", prefix="/muster/v2")
    await prepared(etcd, changed)
    await put(etcd, "/muster/v2/gangs/a", "muster", "another")
    for key, password in (("/muster/v1/gangs/a", "another"), ("/muster/v2/gangs/a", "of muster")):
        with pytest.raises(EtcdUnavailable):
            await put(etcd, key, "muster", password)


async def test_one_that_was_interrupted_is_completed(etcd: EtcdProcess) -> None:
    store = Store(etcd.endpoint, 5.0)
    await store.ask(lambda client: client.put("/muster/v1/leader", "x"))
    await store.close()
    await prepared(etcd, replace(WANTED, password="of an earlier try"))
    await prepared(etcd, WANTED)
    await put(etcd, "/muster/v1/gangs/a", "muster", "of muster")


async def test_another_password_of_root_is_told_without_telling_passwords(etcd: EtcdProcess) -> None:
    await prepared(etcd, WANTED)
    with pytest.raises(CannotPrepare, match="another password for root") as raised:
        await prepared(etcd, replace(WANTED, root_password="not that"))
    assert "not that" not in str(raised.value) and "of " not in repr(WANTED)


async def test_an_etcd_that_does_not_answer_is_named() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(CannotPrepare, match=nobody):
        await asyncio.to_thread(prepare, nobody, PLAIN_TEXT, WANTED, timeout_seconds=0)
