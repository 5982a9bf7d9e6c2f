"""TLS of the command line: server names, and errors when the two sides do not agree."""

from pathlib import Path

import grpc
import pytest

from builders.net.certificates import Authority
from builders.net.grpc import Placement, describe, serving
from muster.cli.channel import channel_to
from muster.cli.coordinator import call_error
from muster.cli.errors import CliError
from muster.config.settings import TlsSettings


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def use(monkeypatch: pytest.MonkeyPatch, tls: TlsSettings) -> None:
    for name in ("certificate_file", "key_file", "ca_file"):
        monkeypatch.setenv(f"MUSTER_CLI_TLS__{name.upper()}", str(getattr(tls, name)))


async def server_description(port: int, service: str = "coordinator") -> str:
    async with channel_to(f"127.0.0.1:{port}", service) as channel:
        try:
            return await describe(channel)
        except grpc.aio.AioRpcError as error:
            raise call_error(f"127.0.0.1:{port}", error) from error


async def test_a_forwarded_service_needs_a_certificate_for_its_name(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, authority.issue("client"))
    async with serving(placement=Placement(), tls=authority.issue("server", "muster-cluster-state")) as (_, port):
        assert await server_description(port, "cluster-state") == "test"
        with pytest.raises(CliError, match=r"the certificate of .* is for another name") as caught:
            await server_description(port, "coordinator")
        assert caught.value.hint is not None and "MUSTER_CLI_TLS_SERVER_NAME" in caught.value.hint
        monkeypatch.setenv("MUSTER_CLI_TLS_SERVER_NAME", "muster-cluster-state")
        assert await server_description(port, "coordinator") == "test"


async def test_tls_on_one_side_only_is_an_error(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(placement=Placement(), tls=authority.issue("server")) as (_, port):
        with pytest.raises(CliError, match=r"TLS with the coordinator at .* failed"):
            await server_description(port)
    use(monkeypatch, authority.issue("client"))
    async with serving(placement=Placement()) as (_, port):
        with pytest.raises(CliError, match=r"TLS with the coordinator at .* failed"):
            await server_description(port)


async def test_a_server_of_another_authority_is_an_error(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Authority(tmp_path / "other").issue("client"))
    async with serving(placement=Placement(), tls=authority.issue("server", "muster-coordinator")) as (_, port):
        with pytest.raises(CliError, match=r"TLS with the coordinator at .* failed"):
            await server_description(port)


def test_unusable_certificate_files_are_named(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = authority.issue("client")
    use(monkeypatch, issued.model_copy(update={"key_file": Path("nowhere.key")}))
    with pytest.raises(CliError, match=r"nowhere\.key"):
        channel_to("127.0.0.1:1")
    monkeypatch.delenv("MUSTER_CLI_TLS__KEY_FILE")
    with pytest.raises(CliError, match="mutual TLS also needs key_file"):
        channel_to("127.0.0.1:1")
