"""Rotation of certificates and passwords under a running store."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.net.certificates import Authority
from muster.config.settings import CannotStart, TlsSettings
from muster.etcd.election import Election
from muster.etcd.store import EtcdUnavailable, Store
from muster.etcd.users import UserSetup, set_up_users
from muster.localcluster.etcd import EtcdProcess

PREFIX = "/muster/v1"
USER, ROOT_PASSWORD = "muster", "root's own"
SECONDS = 60.0
TTL_SECONDS = 60
"""Long enough that no lease expires in these tests."""


class Secured:
    """An etcd with mutual TLS and authentication, and the files of a client."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.strangers = Authority(directory / "strangers")
        self.client = self.authority.issue("client")
        self.process = EtcdProcess(directory / "etcd", durable=False, tls=self.authority.issue("etcd"))
        self.password_file = directory / "password"
        self.password_file.write_text("first")

    def password(self) -> str:
        try:
            return self.password_file.read_text()
        except OSError as error:
            raise CannotStart(f"no password: {error}") from error

    async def let_be(self, password: str) -> None:
        """Set the user's password in etcd."""
        wanted = UserSetup(USER, password, ROOT_PASSWORD, PREFIX)
        await asyncio.to_thread(
            set_up_users, self.process.endpoint, self.authority.issue("admin"), wanted, timeout_seconds=SECONDS
        )

    def store(self) -> Store:
        return Store(self.process.endpoint, tls=self.client, user=USER, password=self.password)

    def show(self, issued: TlsSettings) -> None:
        """Replace the client's certificate and key."""
        for kind in ("key_file", "certificate_file"):
            getattr(self.client, kind).write_bytes(getattr(issued, kind).read_bytes())


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[Secured]:
    etcd = Secured(tmp_path)
    async with etcd.process:
        await etcd.let_be("first")
        yield etcd


@pytest.fixture
async def store(etcd: Secured) -> AsyncIterator[Store]:
    store = etcd.store()
    yield store
    await store.close()


async def test_each_call_uses_the_current_certificate(etcd: Secured, store: Store) -> None:
    assert await store.get_prefix(f"{PREFIX}/") == []
    etcd.show(etcd.strangers.issue("client"))
    with pytest.raises(EtcdUnavailable):
        await store.get_prefix(f"{PREFIX}/")
    etcd.show(etcd.authority.issue("other"))
    assert await store.get_prefix(f"{PREFIX}/") == []


async def test_leadership_survives_rotation_of_certificates(etcd: Secured, store: Store) -> None:
    election = Election(store, f"{PREFIX}/leader", "me", ttl_seconds=TTL_SECONDS)
    leadership = await asyncio.wait_for(election.campaign(), SECONDS)
    for number in range(3):
        etcd.show(etcd.authority.issue("other"))
        await store.commit(leadership.fence, {f"{PREFIX}/gangs/{number}": b"1"})
    assert leadership.held
    assert len(await store.get_prefix(f"{PREFIX}/gangs/")) == 3
    await election.resign()


async def test_password_changed_in_the_file_first_causes_no_gap(etcd: Secured, store: Store) -> None:
    election = Election(store, f"{PREFIX}/leader", "me", ttl_seconds=TTL_SECONDS)
    leadership = await asyncio.wait_for(election.campaign(), SECONDS)
    etcd.password_file.write_text("second")
    await store.commit(leadership.fence, {f"{PREFIX}/gangs/a": b"1"})
    await etcd.let_be("second")
    await store.commit(leadership.fence, {f"{PREFIX}/gangs/a": b"2"})
    assert leadership.held
    await election.resign()


async def test_wrong_password_is_reported_until_the_file_has_the_right_one(etcd: Secured, store: Store) -> None:
    await store.get_prefix(f"{PREFIX}/")
    await etcd.let_be("second")
    with pytest.raises(EtcdUnavailable, match="authentication failed"):
        await store.get_prefix(f"{PREFIX}/")
    etcd.password_file.unlink()
    with pytest.raises(EtcdUnavailable, match="authentication failed"):
        await store.get_prefix(f"{PREFIX}/")
    etcd.password_file.write_text("second")
    assert await store.get_prefix(f"{PREFIX}/") == []


async def test_permissions_are_limited_to_the_prefix(store: Store) -> None:
    with pytest.raises(EtcdUnavailable, match="permission denied"):
        await store.get_prefix("/other/")
