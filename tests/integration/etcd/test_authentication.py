"""Authentication with a real etcd whose password checks are slow, as by default."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from builders.etcd.server import eventually_healthy
from builders.telemetry.metrics import Figures
from muster.config.settings import PLAIN_TEXT
from muster.etcd.errors import EtcdUnavailable
from muster.etcd.store import Store
from muster.etcd.users import UserSetup, set_up_users
from muster.localcluster.etcd import EtcdProcess

PREFIX = "/muster/v1"
WANTED = UserSetup(user="muster", password="of muster", root_password="of root", prefix=PREFIX)
SHORT_SECONDS = 0.05
"""Enough for a request; a password check takes longer at this cost on any machine."""
SLOW_CHECKS = ("--bcrypt-cost", "12")


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdProcess]:
    async with EtcdProcess(tmp_path_factory.mktemp("slow"), durable=False, flags=SLOW_CHECKS) as process:
        await asyncio.to_thread(set_up_users, process.endpoint, PLAIN_TEXT, WANTED, timeout_seconds=60)
        yield process


async def authentications(etcd: EtcdProcess) -> float:
    """Number of password checks in etcd."""
    return (await Figures.at(etcd.endpoint))("grpc_server_started_total", grpc_method="Authenticate")


@pytest_asyncio.fixture(loop_scope="module")
async def store_with(etcd: EtcdProcess) -> AsyncIterator[Callable[[float, str], Store]]:
    opened = []

    def store_with(timeout_seconds: float, password: str) -> Store:
        opened.append(Store(etcd.endpoint, timeout_seconds, user=WANTED.user, password=lambda: password))
        return opened[-1]

    yield store_with
    for store in opened:
        await store.close()


async def test_password_check_continues_after_a_request_times_out(
    etcd: EtcdProcess, store_with: Callable[[float, str], Store]
) -> None:
    store, before = store_with(SHORT_SECONDS, WANTED.password), await authentications(etcd)
    with pytest.raises(EtcdUnavailable, match="authentication has not finished") as raised:
        await store.get_prefix(f"{PREFIX}/")
    assert raised.value.outcome_known
    await eventually_healthy(store, key=f"{PREFIX}/leader")
    assert await authentications(etcd) == before + 1


async def test_concurrent_callers_share_one_password_check(
    etcd: EtcdProcess, store_with: Callable[[float, str], Store]
) -> None:
    store, before = store_with(30.0, WANTED.password), await authentications(etcd)
    assert await asyncio.gather(*(store.get_prefix(f"{PREFIX}/") for _ in range(8))) == [[]] * 8
    assert await authentications(etcd) == before + 1


async def test_rejected_password_is_tried_again_by_each_call(
    etcd: EtcdProcess, store_with: Callable[[float, str], Store]
) -> None:
    store, before = store_with(30.0, "wrong"), await authentications(etcd)
    for tries in (1, 2):
        with pytest.raises(EtcdUnavailable, match="authentication failed"):
            await store.get_prefix(f"{PREFIX}/")
        assert await authentications(etcd) == before + tries
