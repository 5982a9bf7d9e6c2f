"""The epoch of the leader, as binding reads it: from a coordinator, which reads etcd."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from builders.binding.service import Rig, rig
from builders.etcd.server import etcd_in
from muster.binding.leader_epoch import LeaderEpochReader
from muster.binding.leader_fence import LeaderUnknown
from muster.binding.v1 import binding_pb2 as pb
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.api import FULL_NAME, CoordinatorServicer
from muster.coordinator.v1 import coordinator_pb2_grpc
from muster.etcd.election import Election, LeaderKey
from muster.etcd.store import Store
from muster.localcluster.etcd import EtcdProcess
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer

KEY = "/test/leader"


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


@pytest.fixture
async def muster(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path, requests_in_flight=4) as found:
        yield found


async def test_every_coordinator_says_who_leads(etcd: EtcdProcess) -> None:
    store = Store(etcd.endpoint)
    servicer = CoordinatorServicer()
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "coordinator")
    server.add(coordinator_pb2_grpc.add_CoordinatorServiceServicer_to_server, servicer, FULL_NAME)
    port = await server.start()
    server.set_ready(True)
    reader = LeaderEpochReader(open_channel(f"127.0.0.1:{port}"))
    with pytest.raises(LeaderUnknown, match="this replica is starting"):
        await reader()
    servicer.standby(Election(store, KEY, "standby").leader)
    assert await reader() == 0
    election = Election(store, KEY, "leader")
    leadership = await election.campaign()
    assert await reader() == leadership.fence.create_revision > 0
    await election.resign()
    assert await reader() == 0
    again = await election.campaign()
    assert await reader() == again.fence.create_revision > leadership.fence.create_revision
    await election.resign()
    await etcd.stop()
    with pytest.raises(LeaderUnknown, match="the leader key cannot be read"):
        await reader()
    await reader.close()
    await server.stop(0)
    await store.close()


async def test_one_call_with_a_made_up_epoch_does_not_lock_the_leader_out(muster: Rig) -> None:
    pods = await muster.pods("a", "b")
    await muster.bind(pods[:1], epoch=7)
    for epoch in (8, 2**63, 2**64 - 1):
        with pytest.raises(grpc.aio.AioRpcError, match="is not confirmed by etcd") as refused:
            await muster.stub.Write(pb.WriteRequest(leader_epoch=epoch), timeout=9)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await muster.bind(pods[1:], epoch=7)
    assert await muster.nodes_of(pods) == ["node-0", "node-0"]


async def test_frozen_coordinator_does_not_keep_the_epoch_from_binding() -> None:
    frozen = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    servicer = CoordinatorServicer()

    async def leader() -> LeaderKey:
        return LeaderKey("leader", 7, 1, 7)

    servicer.standby(leader)
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "coordinator")
    server.add(coordinator_pb2_grpc.add_CoordinatorServiceServicer_to_server, servicer, FULL_NAME)
    port = await server.start()
    server.set_ready(True)
    silent = frozen.sockets[0].getsockname()[1]
    reader = LeaderEpochReader(open_channel(f"ipv4:127.0.0.1:{silent},127.0.0.1:{port}"))
    assert [await reader() for _ in range(4)] == [7, 7, 7, 7]
    await reader.close()
    await server.stop(0)
    frozen.close()
