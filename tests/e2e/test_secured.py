"""Muster with mutual TLS everywhere and etcd users: gangs start, and unauthorized clients are rejected."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from builders.console.services import events
from builders.e2e.secured import Secured, secured_cluster
from builders.gangs.manifests import gang
from builders.net.certificates import Authority
from muster.config.settings import PLAIN_TEXT
from muster.localcluster.security import CALLERS, CLIENT
from muster.localcluster.stack import SERVICES

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    async with secured_cluster(tmp_path_factory.mktemp("secured")) as secured:
        yield secured


async def test_gangs_start_during_certificate_rotation(secured: Secured) -> None:
    pids = {name: child.pid for name, child in secured.stack.children.items()}
    replaced, numbers, after = asyncio.Event(), itertools.count(), 0

    async def start_on() -> None:
        nonlocal after
        while after < 3:
            await secured.start(gang(f"stream-{next(numbers)}").of(3).asking(cpu="100m"))
            after += replaced.is_set()

    starting = asyncio.create_task(start_on())
    for _ in range(2):
        await secured.security.renew()
    replaced.set()
    await starting
    assert {name: child.pid for name, child in secured.stack.children.items()} == pids


async def test_a_restarted_service_is_called_with_the_new_certificate(secured: Secured) -> None:
    await secured.security.renew()
    for name in ("binding", "placement"):
        await secured.stack.kill(name)
    await secured.stack.start(["binding", "placement"])
    await secured.start(gang("back").of(3).asking(cpu="100m"))
    assert '"certificate_reloaded"' in (secured.stack.directory / "logs" / "coordinator.log").read_text()


@pytest.mark.parametrize("service", SERVICES)
async def test_only_calls_of_the_architecture_are_accepted(secured: Secured, service: str) -> None:
    for caller in (*SERVICES, CLIENT):
        answered = await secured.answer(service, secured.stack.tls(caller))
        expected = grpc.StatusCode.OK if caller in CALLERS[service] else grpc.StatusCode.PERMISSION_DENIED
        assert answered is expected, f"{caller} -> {service}"


async def test_clients_without_certificate_are_rejected(secured: Secured, tmp_path: Path) -> None:
    named_well = Authority(tmp_path).issue("coordinator", "muster-coordinator", "muster-client")
    trusting = named_well.model_copy(update={"ca_file": secured.stack.tls().ca_file})
    for service in SERVICES:
        for tls in (PLAIN_TEXT, trusting):
            assert await secured.answer(service, tls) is grpc.StatusCode.UNAVAILABLE


async def test_users_query_with_the_client_certificate(secured: Secured) -> None:
    await secured.start(gang("asked").of(2).asking(cpu="100m"))
    address = secured.stack.addresses["coordinator"]
    ours = secured.security.client_environment
    code, message = await secured.muster("gangs", "-o", "json", "--coordinator", address, environment=ours)
    assert code == 0, message
    assert "asked" in {each["name"] for each in json.loads(message)["gangs"]}
    theirs = {key: value.replace("client.", "placement.") for key, value in ours.items()}
    for environment, expected in (
        (theirs, "muster-client, muster-console, muster-forecast may call here"),
        ({}, "TLS with the coordinator at"),
    ):
        code, message = await secured.muster("gangs", "--coordinator", address, environment=environment)
        assert (code, expected in message) == (1, True), message


async def test_the_console_reads_with_its_own_certificate(secured: Secured) -> None:
    await secured.start(gang("shown").of(2).asking(cpu="100m"))
    url = secured.stack.console_url.rstrip("/")
    assert url.startswith("https:")
    async with events(url, "feeds=gangs") as page:
        names: set[str] = set()
        while "shown" not in names:
            names |= {row["name"] for row in (await page.until("gangs"))["rows"]}


async def test_no_secret_is_visible(secured: Secured) -> None:
    await secured.start(gang("seen").of(2).asking(cpu="100m"))
    secrets, visible = secured.secrets(), secured.visible()
    kinds = {"etcd-password", "etcd-root-password", "coordinator.key line 0", "webhook.key line 0"}
    assert kinds <= secrets.keys()
    assert any("token" in name for name in secrets)
    assert any("MUSTER_COORDINATOR_ETCD_PASSWORD_FILE" in text for text in visible.values())
    assert any("muster.cli\0run\0coordinator" in text for text in visible.values())
    assert any('"term_started"' in text for text in visible.values())
    for (name, secret), (place, text) in itertools.product(secrets.items(), visible.items()):
        assert secret not in text, f"{name} stands in {place}"
