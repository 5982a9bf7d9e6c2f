"""The HTTP server: files, headers, limits, TLS and the end of the service."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from builders.console.services import console, events, gang, services
from builders.net.certificates import Authority
from builders.wait import eventually
from muster.config.settings import BadSettings, ServerTlsSettings, load
from muster.console.server import MAX_STREAMS_OF_USER
from muster.console.settings import HttpsSettings, Settings
from muster.localcluster.ports import free_port
from muster.rpc.health_probe import is_serving

STATIC = Path(__file__).parents[3] / "services/muster/console/static"


async def test_every_answer_forbids_what_the_page_does_not_need() -> None:
    async with services() as there, console(there.settings()) as url, aiohttp.ClientSession() as session:
        for path in (
            "/",
            "/static/app.js",
            "/static/none",
            "/api/session",
            "/api/events?feeds=gangs",
            "/none",
            "/ready",
        ):
            async with session.get(url + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
                assert "frame-ancestors 'none'" in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_files_are_served_with_their_type_and_a_tag() -> None:
    types = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
    async with services() as there, console(there.settings()) as url, aiohttp.ClientSession() as session:
        for file in STATIC.iterdir():
            async with session.get(f"{url}/static/{file.name}") as answer:
                assert (answer.status, answer.content_type) == (200, types[file.suffix])
                assert await answer.read() == file.read_bytes()
                tag = answer.headers["ETag"]
            async with session.get(f"{url}/static/{file.name}", headers={"If-None-Match": tag}) as answer:
                assert answer.status == 304


@pytest.mark.parametrize("path", ["static/..%2fserver.py", "static/%2e%2e/server.py", "server.py", "static/x%00.js"])
async def test_no_other_file_is_served(path: str) -> None:
    async with (
        services() as there,
        console(there.settings()) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/{path}") as answer,
    ):
        assert answer.status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(method: str) -> None:
    async with services() as there, console(there.settings()) as url, aiohttp.ClientSession() as session:
        for path in ("/", "/api/session", "/api/events"):
            async with session.request(method, url + path, data=b"x" * 100) as answer:
                assert answer.status == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]:1"])
async def test_without_authentication_other_host_names_are_rejected(host: str) -> None:
    """A page of another site whose name resolves to 127.0.0.1 must not read the console."""
    async with services() as there, console(there.settings()) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/api/session", headers={"Host": host}) as answer:
            assert answer.status == 421
        async with session.get(f"{url}/api/session", headers={"Host": "localhost:7007"}) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("query", ["feeds=pods", "feeds=gangs,x", f"gang={'x' * 1001}", f"namespace={'x' * 2000}"])
async def test_invalid_parameters_are_rejected(query: str) -> None:
    async with (
        services() as there,
        console(there.settings()) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/api/events?{query}") as answer,
    ):
        assert answer.status == 400


async def test_a_user_can_open_a_limited_number_of_pages() -> None:
    async with services() as there, console(there.settings()) as url, aiohttp.ClientSession() as session:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as many:
            pages = [await many.get(f"{url}/api/events?overview=1") for _ in range(MAX_STREAMS_OF_USER)]
            async with session.get(f"{url}/api/events?overview=1") as answer:
                assert answer.status == 429
            pages[0].close()

            async def accepted() -> bool:
                async with session.get(f"{url}/api/events?overview=1") as answer:
                    return answer.status == 200

            await eventually(accepted, "a closed page makes room")


async def test_a_browser_that_does_not_read_delays_nobody() -> None:
    async with services() as there, console(there.settings()) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(f"GET /api/events?feeds=gangs HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        await writer.drain()
        async with events(url, "feeds=gangs") as page:
            await page.until("gangs")
            for number in range(50):
                there.coordinator.put(
                    *(gang(f"koordinator/ml/g{each}", reason=f"{number} " * 300) for each in range(100))
                )
            last: dict[str, str] = {}
            while not all(last.get(f"koordinator/ml/g{each}", "").startswith("49 ") for each in range(100)):
                last.update((row["id"], row["reason"]) for row in (await page.until("gangs"))["rows"])
        writer.close()


async def test_https_uses_the_certificate_of_tls_or_one_of_its_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("console", "console.example.com")
    files = {name: getattr(own, name) for name in ("certificate_file", "key_file")}
    async with (
        services() as there,
        console(there.settings(https=HttpsSettings(**files))) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/", ssl=False) as answer,
    ):
        assert (url.partition(":")[0], answer.status) == ("https", 200)
    tls = ServerTlsSettings(**own.model_dump())
    assert Settings(tls=tls, listen="127.0.0.1:0").https_files == (own.certificate_file, own.key_file)


async def test_the_service_ends_its_streams_and_reports_health() -> None:
    async with services() as there:
        health = f"127.0.0.1:{free_port()}"
        async with aiohttp.ClientSession() as session:
            async with console(there.settings(health_listen=health)) as url:
                assert await is_serving(health)
                response = await session.get(f"{url}/api/events?overview=1")
                await response.content.readline()
            async with asyncio.timeout(60):
                while await response.content.readline():
                    pass
        assert not await is_serving(health)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listen": "0.0.0.0:7007"}, "no TLS is configured"),
        ({"listen": "0.0.0.0:7007", "insecure": True, "authentication": "none"}, "anyone in the network could see"),
        ({"trace_url": "javascript:alert({trace_id})"}, "MUSTER_CONSOLE_TRACE_URL"),
        ({"trace_url": "http://jaeger/trace/"}, "MUSTER_CONSOLE_TRACE_URL"),
        ({"https": {"certificate_file": "x"}}, "key_file is missing"),
    ],
    ids=["plain-text", "open", "script", "no-id", "no-key"],
)
def test_unsafe_settings_are_rejected(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        load(Settings, values)


def test_people_are_authenticated_beyond_this_machine() -> None:
    assert Settings(listen="127.0.0.1:0").authentication == "none"
    assert Settings(listen="0.0.0.0:0", insecure=True).authentication == "token"
    assert Settings(insecure=True).listen == "0.0.0.0:7007"
