"""Passwords of a real etcd that checks them slowly, as it does by default."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from builders.etcd.server import eventually_healthy
from builders.telemetry.metrics import Figures
from muster.config.settings import PLAIN_TEXT
from muster.etcd.errors import EtcdUnavailable
from muster.etcd.store import Store
from muster.etcd.users import Wanted, prepare
from muster.localcluster.etcd import EtcdProcess

PREFIX = "/muster/v1"
WANTED = Wanted(user="muster", password="of muster", root_password="of root", prefix=PREFIX)
SHORT_SECONDS = 0.05
"""Enough for a request; each check of a password takes longer at this cost, however fast the machine."""
SLOW_CHECKS = ("--bcrypt-cost", "12")


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdProcess]:
    async with EtcdProcess(tmp_path_factory.mktemp("slow"), durable=False, flags=SLOW_CHECKS) as process:
        await asyncio.to_thread(prepare, process.endpoint, PLAIN_TEXT, WANTED, timeout_seconds=60)
        yield process


async def sign_ins(etcd: EtcdProcess) -> float:
    """How often etcd was shown a password."""
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


async def test_a_check_of_the_password_that_takes_longer_than_a_request_may_ends_all_the_same(
    etcd: EtcdProcess, store_with: Callable[[float, str], Store]
) -> None:
    store, before = store_with(SHORT_SECONDS, WANTED.password), await sign_ins(etcd)
    with pytest.raises(EtcdUnavailable, match="the password is not checked yet") as raised:
        await store.get_prefix(f"{PREFIX}/")
    assert raised.value.outcome_known
    await eventually_healthy(store, key=f"{PREFIX}/leader")
    assert await sign_ins(etcd) == before + 1


async def test_all_who_ask_at_the_same_time_wait_for_one_check(
    etcd: EtcdProcess, store_with: Callable[[float, str], Store]
) -> None:
    store, before = store_with(30.0, WANTED.password), await sign_ins(etcd)
    assert await asyncio.gather(*(store.get_prefix(f"{PREFIX}/") for _ in range(8))) == [[]] * 8
    assert await sign_ins(etcd) == before + 1


async def test_each_call_after_a_refused_password_shows_it_anew(
    etcd: EtcdProcess, store_with: Callable[[float, str], Store]
) -> None:
    store, before = store_with(30.0, "wrong"), await sign_ins(etcd)
    for tries in (1, 2):
        with pytest.raises(EtcdUnavailable, match="authentication failed"):
            await store.get_prefix(f"{PREFIX}/")
        assert await sign_ins(etcd) == before + tries
