"""KubeSession against real HTTP servers: responses, renewal of credentials, and errors."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from builders.kube.kubeconfigs import Plugin, write_kubeconfig
from builders.net.certificates import Authority
from builders.wait import yield_to_loop
from muster.config.settings import KubeSettings
from muster.kube.session import ApiStatusError, BadKubeconfig, KubeSession, KubeUnreachable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server with one scripted response, and its URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(settings: KubeSettings, connections: int = 8) -> AsyncIterator[KubeSession]:
    session = await KubeSession.connect(settings, connections=connections)
    try:
        yield session
    finally:
        await session.close()


async def echo(request: web.Request) -> web.Response:
    """The requests received."""
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "type": request.headers.get("Content-Type"),
            "authorization": request.headers.get("Authorization"),
            "body": await request.text(),
        },
        status=418,
    )


async def test_request_is_sent_unchanged_and_any_status_is_returned(tmp_path: Path) -> None:
    async with serving(echo) as url, connected(write_kubeconfig(tmp_path, url, user={"token": "abc"})) as kube:
        response = await kube.request(
            "PATCH", "/api/v1/x%2Fy", query={"a": "1 2&3"}, body=b"{}", content_type="application/y", timeout_seconds=9
        )
    assert response.status == 418
    assert response.headers["content-type"].startswith("application/json")
    assert b'"path": "/api/v1/x%2Fy?a=1+2%263"' in response.body
    assert b'"type": "application/y"' in response.body
    assert b'"authorization": "Bearer abc"' in response.body
    assert b'"method": "PATCH"' in response.body


async def test_server_url_with_a_path(tmp_path: Path) -> None:
    async with serving(echo) as url, connected(write_kubeconfig(tmp_path, url + "/k8s/c-1/")) as kube:
        response = await kube.request("GET", "/version", timeout_seconds=9)
    assert b'"path": "/k8s/c-1/version"' in response.body


async def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/steal"})

    async with serving(elsewhere) as url, connected(write_kubeconfig(tmp_path, url)) as kube:
        assert (await kube.request("GET", "/", timeout_seconds=9)).status == 302


async def test_connections_are_reused_and_limited(tmp_path: Path) -> None:
    peers: set[object] = set()
    inside = most = 0

    async def count(request: web.Request) -> web.Response:
        nonlocal inside, most
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        inside += 1
        most = max(most, inside)
        await yield_to_loop()
        inside -= 1
        return web.Response()

    async with serving(count) as url, connected(write_kubeconfig(tmp_path, url), connections=3) as kube:
        await asyncio.gather(*(kube.request("GET", "/", timeout_seconds=9) for _ in range(60)))
    assert len(peers) <= 3
    assert most <= 3


# -- failures


async def test_connection_refused(tmp_path: Path) -> None:
    async with serving(echo) as url:
        pass
    async with connected(write_kubeconfig(tmp_path, url, user={"token": "secret-token"})) as kube:
        with pytest.raises(KubeUnreachable, match=f"cannot be reached at {url}/api") as failure:
            await kube.request("GET", "/api", timeout_seconds=9)
    assert failure.value.url == f"{url}/api"
    assert "secret-token" not in str(failure.value)


async def test_timeout(tmp_path: Path) -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(never) as url, connected(write_kubeconfig(tmp_path, url)) as kube:
        with pytest.raises(KubeUnreachable, match="no answer in time"):
            await kube.request("GET", "/", timeout_seconds=0.05)
        with pytest.raises(KubeUnreachable, match="no answer in time"):
            async with kube.stream("/", {}, read_timeout_seconds=0.05):
                pass


async def test_truncated_response(tmp_path: Path) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half\nof it")
        assert request.transport is not None
        request.transport.close()
        return response

    async with serving(breaks) as url, connected(write_kubeconfig(tmp_path, url)) as kube:
        with pytest.raises(KubeUnreachable):
            await kube.request("GET", "/", timeout_seconds=9)
        lines: list[bytes] = []
        with pytest.raises(KubeUnreachable):
            async with kube.stream("/", {}, read_timeout_seconds=9) as (_, found):
                lines.append(await anext(found))
                await anext(found)
        assert lines == [b"half"]


@pytest.mark.parametrize("chunked", [False, True])
async def test_endless_response_is_aborted(tmp_path: Path, chunked: bool) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={} if chunked else {"Content-Length": str(10**12)})
        if chunked:
            response.enable_chunked_encoding()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 10_000)

    async with serving(endless) as url, connected(write_kubeconfig(tmp_path, url)) as kube:
        with pytest.raises(KubeUnreachable, match="more than 100000 bytes"):
            await kube.request("GET", "/", timeout_seconds=9, max_bytes=100_000)


async def test_closed_session_fails_like_a_broken_connection(tmp_path: Path) -> None:
    async with serving(echo) as url, connected(write_kubeconfig(tmp_path, url)) as kube:
        await kube.close()
        with pytest.raises(KubeUnreachable):
            await kube.request("GET", "/", timeout_seconds=9)
        with pytest.raises(KubeUnreachable):
            async with kube.stream("/", {}, read_timeout_seconds=9):
                pass


# -- streams


async def test_lines_of_any_length_in_any_chunks(tmp_path: Path) -> None:
    lines = [b"short", b"", b"x" * 1_000_000, b"y" * 65_536, "übergröße".encode(), b"the last has no end"]
    content = b"\n".join(lines)

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(content), 77_777):
            await response.write(content[start : start + 77_777])
        return response

    async with (
        serving(stream) as url,
        connected(write_kubeconfig(tmp_path, url)) as kube,
        kube.stream("/", {"watch": "true"}, read_timeout_seconds=9) as (status, found),
    ):
        assert status == 200
        assert [line async for line in found] == lines


async def test_lines_are_delivered_as_they_are_sent(tmp_path: Path) -> None:
    read = asyncio.Queue[None]()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(3):
            await response.write(b"%d\n" % number)
            await read.get()
        return response

    async with (
        serving(stream) as url,
        connected(write_kubeconfig(tmp_path, url)) as kube,
        kube.stream("/", {}, read_timeout_seconds=9) as (_, found),
    ):
        seen = []
        async for line in found:
            seen.append(line)
            read.put_nowait(None)
    assert seen == [b"0", b"1", b"2"]


async def test_leaving_a_stream_closes_it(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return response

    async with serving(stream) as url, connected(write_kubeconfig(tmp_path, url), connections=1) as kube:
        async with kube.stream("/", {}, read_timeout_seconds=9) as (_, found):
            assert await anext(found) == b"one"
        async with asyncio.timeout(9):
            await left.wait()


# -- credentials


class Guarded:
    """Accepts requests with the token."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.seen: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "")
        self.seen.append(given)
        status = 200 if given == f"Bearer {self.token}" else 401
        return web.Response(status=status, text="one\ntwo")


async def test_rejected_token_is_replaced_once_for_all_requests(tmp_path: Path) -> None:
    plugin, guarded = Plugin(tmp_path), Guarded("new")
    plugin.answer(token="old")
    async with serving(guarded.answer) as url, connected(write_kubeconfig(tmp_path, url, user=plugin.user)) as kube:
        plugin.answer(token="new")
        answers = await asyncio.gather(*(kube.request("POST", "/", body=b"", timeout_seconds=9) for _ in range(8)))
    assert [answer.status for answer in answers] == [200] * 8
    assert plugin.runs == 2
    assert guarded.seen.count("Bearer new") == 8


async def test_stream_is_reopened_with_a_new_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with (
        serving(Guarded("new").answer) as url,
        connected(write_kubeconfig(tmp_path, url, user={"tokenFile": str(token)})) as kube,
    ):
        token.write_text("new")
        async with kube.stream("/", {}, read_timeout_seconds=9) as (status, lines):
            assert status == 200
            assert [line async for line in lines] == [b"one", b"two"]


async def test_rejected_credentials_are_not_reloaded_in_a_loop(tmp_path: Path) -> None:
    plugin, guarded = Plugin(tmp_path), Guarded("never")
    plugin.answer(token="old")
    async with serving(guarded.answer) as url, connected(write_kubeconfig(tmp_path, url, user=plugin.user)) as kube:
        for _ in range(5):
            assert (await kube.request("GET", "/", timeout_seconds=9)).status == 401
        async with kube.stream("/", {}, read_timeout_seconds=9) as (status, _lines):
            assert status == 401
    assert plugin.runs == 2
    assert len(guarded.seen) == 6


async def test_failing_reload_keeps_the_old_credentials(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.answer(token="old-secret")
    async with (
        serving(Guarded("new").answer) as url,
        connected(write_kubeconfig(tmp_path, url, user=plugin.user)) as kube,
    ):
        plugin.fail()
        with capture_logs() as logs:
            assert (await kube.request("GET", "/", timeout_seconds=9)).status == 401
    (line,) = (line for line in logs if line["event"] == "credentials_reload_failed")
    assert "old-secret" not in str(line)


# -- TLS


def server_context(authority: Authority) -> ssl.SSLContext:
    """A server that requires client certificates of that CA."""
    files = authority.issue("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca_file))
    context.load_cert_chain(str(files.certificate_file), str(files.key_file))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def trusting(authority: Authority, **more: object) -> dict[str, object]:
    return {"certificate-authority": str(authority.certificate), **more}


def as_client(authority: Authority, name: str) -> dict[str, str]:
    files = authority.issue(name)
    return {"client-certificate": str(files.certificate_file), "client-key": str(files.key_file)}


async def who(request: web.Request) -> web.Response:
    """The common name of the client's certificate; "old" is rejected."""
    assert request.transport is not None
    subject = dict(pair[0] for pair in request.transport.get_extra_info("peercert")["subject"])
    return web.Response(text=subject["commonName"], status=401 if subject["commonName"] == "old" else 200)


async def test_client_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    async with serving(who, server_context(authority)) as url:
        settings = write_kubeconfig(tmp_path, url, user=as_client(authority, "muster"), cluster=trusting(authority))
        async with connected(settings) as kube:
            assert (await kube.request("GET", "/", timeout_seconds=9)).body == b"muster"


async def test_rotated_certificates_are_used_for_new_connections(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    async with serving(who, server_context(authority)) as url:
        settings = write_kubeconfig(tmp_path, url, user=as_client(authority, "old"), cluster=trusting(authority))
        async with connected(settings) as kube:
            write_kubeconfig(tmp_path, url, user=as_client(authority, "new"), cluster=trusting(authority))
            answers = await asyncio.gather(*(kube.request("GET", "/", timeout_seconds=9) for _ in range(6)))
    assert [answer.body for answer in answers] == [b"new"] * 6


async def test_untrusted_server(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    async with serving(who, server_context(authority)) as url:
        settings = write_kubeconfig(tmp_path, url, user=as_client(authority, "muster"), cluster=trusting(other))
        async with connected(settings) as kube:
            with pytest.raises(KubeUnreachable, match="certificate"):
                await kube.request("GET", "/", timeout_seconds=9)


async def test_server_name_is_verified_or_taken_from_the_kubeconfig(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    async with serving(who, server_context(authority)) as url:
        user = as_client(authority, "muster")
        named = trusting(authority, **{"tls-server-name": "elsewhere.example"})
        async with connected(write_kubeconfig(tmp_path, url, user=user, cluster=named)) as kube:
            with pytest.raises(KubeUnreachable, match=r"elsewhere\.example"):
                await kube.request("GET", "/", timeout_seconds=9)
        careless = write_kubeconfig(tmp_path, url, user=user, cluster={"insecure-skip-tls-verify": True})
        async with connected(careless) as kube:
            assert (await kube.request("GET", "/", timeout_seconds=9)).status == 200


async def test_malformed_certificate(tmp_path: Path) -> None:
    (tmp_path / "bad.crt").write_text("no certificate")
    settings = write_kubeconfig(
        tmp_path, "https://127.0.0.1:1", cluster={"certificate-authority": str(tmp_path / "bad.crt")}
    )
    with pytest.raises(BadKubeconfig, match=r"certificates for https://127\.0\.0\.1:1 cannot be used"):
        await KubeSession.connect(settings)


async def test_error_response_as_exception(tmp_path: Path) -> None:
    async with serving(echo) as url, connected(write_kubeconfig(tmp_path, url)) as kube:
        error = ApiStatusError.from_response(await kube.request("GET", "/", timeout_seconds=9))
    assert error.status == 418
