"""Mutual TLS: both sides present a certificate of the same CA, and a running server loads new ones."""

import asyncio
from pathlib import Path

import grpc
import pytest

from builders.net.certificates import Authority
from builders.net.grpc import Placement, channel_to, describe, serving
from builders.wait import WAIT_SECONDS
from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.rpc.channel import open_channel
from muster.rpc.credentials import BadCertificates


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ours")


async def refused(port: int, tls: TlsSettings) -> bool:
    async with channel_to(f"localhost:{port}", tls) as channel:
        try:
            await describe(channel)
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            return True
    return False


async def test_both_sides_of_one_authority_talk(authority: Authority) -> None:
    async with serving(placement=Placement(), tls=authority.issue("server")) as (_, port):
        assert not await refused(port, authority.issue("client"))


async def test_several_replicas_at_addresses_without_a_name_talk(authority: Authority) -> None:
    placements, tls = [Placement(), Placement()], authority.issue("server")
    async with (
        serving(placement=placements[0], tls=tls) as (_, one),
        serving(placement=placements[1], tls=tls) as (_, two),
        channel_to(f"ipv4:127.0.0.1:{one},127.0.0.1:{two}", authority.issue("client")) as channel,
        asyncio.timeout(WAIT_SECONDS),
    ):
        while not all(placement.calls for placement in placements):
            await describe(channel)


async def test_a_client_without_a_certificate_is_refused(authority: Authority) -> None:
    async with serving(placement=Placement(), tls=authority.issue("server")) as (_, port):
        assert await refused(port, PLAIN_TEXT)


async def test_a_client_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "theirs").issue("client")
    trusts_us = stranger.model_copy(update={"ca_file": authority.certificate})
    async with serving(placement=Placement(), tls=authority.issue("server")) as (_, port):
        assert await refused(port, trusts_us)


async def test_a_client_does_not_talk_to_a_server_of_another_authority(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "theirs")
    trusts_us = stranger.issue("server").model_copy(update={"ca_file": authority.certificate})
    async with serving(placement=Placement(), tls=trusts_us) as (_, port):
        assert await refused(port, authority.issue("client"))


async def test_a_running_server_takes_certificates_that_were_replaced(tmp_path: Path) -> None:
    old = Authority(tmp_path / "authority")
    server_files, old_client = old.issue("server"), old.issue("client")
    async with serving(placement=Placement(), tls=server_files) as (_, port):
        assert not await refused(port, old_client)
        new = Authority(tmp_path / "authority")  # overwrites the files of the old one
        new.issue("server")
        assert not await refused(port, new.issue("client"))


def test_a_missing_file_is_named(authority: Authority, tmp_path: Path) -> None:
    tls = authority.issue("client").model_copy(update={"key_file": tmp_path / "gone.key"})
    with pytest.raises(BadCertificates, match=r"gone\.key"):
        open_channel("localhost:1", tls)
