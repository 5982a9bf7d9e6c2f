"""Replacement of the webhook's certificate files while it is running."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from builders.net.certificates import Authority
from muster.rpc.https import BadServerCertificate, ReloadedTls


@asynccontextmanager
async def serving(tls: ReloadedTls) -> AsyncIterator[int]:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=tls.context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def files_of(authority: Authority) -> tuple[Path, Path]:
    issued = authority.issue("webhook")
    assert issued.certificate_file is not None and issued.key_file is not None
    return issued.certificate_file, issued.key_file


async def shown(port: int) -> str:
    """Returns the certificate of a new connection."""
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def test_new_connections_get_the_current_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = files_of(authority)
    async with serving(ReloadedTls("the quota webhook", certificate, key)) as port:
        assert await shown(port) == certificate.read_text()
        files_of(authority)
        assert await shown(port) == certificate.read_text()


async def test_the_old_certificate_stays_in_use_while_the_new_one_is_incomplete(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = files_of(authority)
    before = certificate.read_text()
    async with serving(ReloadedTls("the quota webhook", certificate, key)) as port:
        certificate.unlink()
        assert await shown(port) == before
        certificate.write_text("half of")
        assert await shown(port) == before
        files_of(authority)
        assert await shown(port) == certificate.read_text() != before


async def test_clients_without_a_certificate_are_refused_if_one_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = files_of(authority)
    client = ssl.create_default_context(cafile=str(authority.certificate))
    async with serving(ReloadedTls("the quota webhook", certificate, key, authority.certificate)) as port:
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            reader, _ = await asyncio.open_connection("127.0.0.1", port, ssl=client)
            await reader.readexactly(5)
        client.load_cert_chain(certificate, key)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        assert await reader.readexactly(5) == b"hello"
        writer.close()


def test_unusable_certificate_files_are_named(tmp_path: Path) -> None:
    missing, nonsense = tmp_path / "missing.crt", tmp_path / "nonsense"
    nonsense.write_text("?")
    with pytest.raises(BadServerCertificate, match=r"missing\.crt"):
        ReloadedTls("the quota webhook", missing, nonsense)
    with pytest.raises(BadServerCertificate, match="nonsense"):
        ReloadedTls("the quota webhook", nonsense, nonsense)
