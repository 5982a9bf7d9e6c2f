"""Limits on requests to the webhook."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from builders.net.certificates import Authority
from builders.wait import WAIT_SECONDS
from muster.lifecycle import admission_server
from muster.lifecycle.quota.webhook import PATH, quota_webhook
from muster.rpc.https import ReloadedTls


class Nobody:
    """A placeholder: these tests need no decisions."""


class Unsynced:
    """Informers that have not synced: complete reviews are answered with 503."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    authority = Authority(tmp_path)
    issued = authority.issue("webhook")
    assert issued.certificate_file is not None and issued.key_file is not None
    tls = ReloadedTls("the quota webhook", issued.certificate_file, issued.key_file)
    served = quota_webhook("127.0.0.1:0", tls, Nobody(), Unsynced())  # type: ignore[arg-type]
    await served.start()
    yield f"https://127.0.0.1:{served.port}{PATH}", ssl.create_default_context(cafile=str(authority.certificate))
    await served.stop()


async def status(url: tuple[str, ssl.SSLContext], body: object) -> int:
    """Returns the HTTP status; 0: the server closed the connection before reading everything."""
    try:
        async with aiohttp.ClientSession() as session, session.post(url[0], data=body, ssl=url[1]) as response:
            return response.status
    except aiohttp.ClientConnectionError:
        return 0


async def test_a_body_longer_than_any_review_is_refused(url: tuple[str, ssl.SSLContext]) -> None:
    assert await status(url, b" " * (5 * 1024 * 1024)) in (413, 0)
    assert await status(url, b"{") == 400


async def test_a_body_that_never_ends_is_not_waited_for(
    url: tuple[str, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_server, "_READ_SECONDS", 0.2)
    never = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    async with asyncio.timeout(WAIT_SECONDS):
        assert await status(url, endless()) == 408


async def test_reviews_that_arrive_at_once_have_bounded_memory(
    url: tuple[str, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_server, "_MAX_READ_BYTES", 100_000)
    rest = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b" " * 60_000
        await rest.wait()

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(status(url, slow())) for _ in range(2)]
        refused, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result() for each in refused] == [503]
        rest.set()
    assert sorted(each.result() for each in both) == [400, 503]
    assert await status(url, b" " * 90_000) == 400, "nothing counts that has ended"


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b'{"apiVersion":"v1","kind":"Pod"}'])
async def test_malformed_reviews_are_rejected(url: tuple[str, ssl.SSLContext], body: bytes) -> None:
    assert await status(url, body) == 400


@pytest.mark.parametrize("odd", [b"[" * 50_000 + b"]" * 50_000, b'"\xff"', b"1e999999"])
async def test_odd_values_do_not_exempt_a_pod_from_its_quota(url: tuple[str, ssl.SSLContext], odd: bytes) -> None:
    metadata = b'"metadata":{"name":"a","managedFields":[{"fieldsV1":' + odd + b"}]}"
    request = b'"uid":"u","operation":"CREATE","resource":{"resource":"pods"},"object":{' + metadata + b"}"
    review = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{' + request + b"}}"
    assert await status(url, review) == 503, "it is understood"
