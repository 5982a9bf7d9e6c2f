"""A server with `clients` accepts only clients whose certificate contains one of these names."""

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from builders.net.certificates import Authority
from builders.net.grpc import ClusterState, Placement, channel_to, describe, serving
from muster.clusterstate.v1 import clusterstate_pb2, clusterstate_pb2_grpc
from muster.config.settings import PLAIN_TEXT, ServerTlsSettings, TlsSettings

CLIENTS = ("muster-coordinator", "Muster-Client")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("callers") / "ours")


@pytest.fixture(scope="module")
def server_tls(authority: Authority) -> TlsSettings:
    return authority.issue("server", "muster-placement")


async def refusal(port: int, tls: TlsSettings) -> tuple[grpc.StatusCode, str]:
    async with channel_to(f"localhost:{port}", tls) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await describe(channel)
    return caught.value.code(), caught.value.details() or ""


@pytest.mark.parametrize("name", ["muster-coordinator", "muster-client", "MUSTER-CLIENT"])
async def test_a_client_with_an_allowed_name_is_accepted(
    name: str, authority: Authority, server_tls: TlsSettings
) -> None:
    placement = Placement()
    async with (
        serving(placement=placement, tls=server_tls, clients=CLIENTS) as (_, port),
        channel_to(f"localhost:{port}", authority.issue("caller", "muster.example", name)) as channel,
    ):
        assert await describe(channel) == "test"


async def test_a_client_with_another_name_is_rejected_with_both_names(
    authority: Authority, server_tls: TlsSettings
) -> None:
    placement = Placement()
    async with serving(placement=placement, tls=server_tls, clients=CLIENTS) as (_, port):
        code, message = await refusal(port, authority.issue("binding", "muster-binding"))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "'muster-binding'" in message and "muster-client, muster-coordinator" in message
    assert placement.calls == 0


async def test_the_common_name_does_not_count(authority: Authority, server_tls: TlsSettings) -> None:
    async with serving(placement=Placement(), tls=server_tls, clients=CLIENTS) as (_, port):
        code, _ = await refusal(port, authority.issue("muster-coordinator", "muster-binding"))
    assert code is grpc.StatusCode.PERMISSION_DENIED


async def test_streams_health_and_reflection_are_rejected_too(authority: Authority, server_tls: TlsSettings) -> None:
    cluster_state = ClusterState()
    async with (
        serving(cluster_state=cluster_state, tls=server_tls, clients=CLIENTS, reflects=True) as (_, port),
        channel_to(f"localhost:{port}", authority.issue("binding", "muster-binding")) as channel,
    ):
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        watched = clusterstate_pb2_grpc.ClusterStateServiceStub(channel).Watch(clusterstate_pb2.WatchRequest())
        for call in (
            health.Check(health_pb2.HealthCheckRequest(), timeout=30),
            health.Watch(health_pb2.HealthCheckRequest(), timeout=30).read(),
            watched.read(),
            reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest()]), timeout=30).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert not cluster_state.subscribers


@pytest.mark.parametrize("with_clients", [True, False])
async def test_an_expired_certificate_fails_the_handshake(with_clients: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    clients = CLIENTS if with_clients else ()
    async with serving(placement=Placement(), tls=authority.issue("server"), clients=clients) as (_, port):
        code, _ = await refusal(port, authority.issue("late", "muster-coordinator", days=-1))
    assert code is grpc.StatusCode.UNAVAILABLE


async def test_an_allowed_name_of_another_ca_fails_the_handshake(
    authority: Authority, server_tls: TlsSettings, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "theirs").issue("coordinator", "muster-coordinator")
    trusts_us = stranger.model_copy(update={"ca_file": authority.certificate})
    async with serving(placement=Placement(), tls=server_tls, clients=CLIENTS) as (_, port):
        for tls in (trusts_us, PLAIN_TEXT):
            code, _ = await refusal(port, tls)
            assert code is grpc.StatusCode.UNAVAILABLE


def test_allowed_clients_need_certificates() -> None:
    with pytest.raises(ValueError, match="no certificate files are given"):
        ServerTlsSettings(clients=("muster-client",))
