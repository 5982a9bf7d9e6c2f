"""Failures inside a term end it, and the next one continues: nothing hangs silently."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc import aio
from msgspec.structs import replace

from builders.clusterstate.stream import ClusterStream, serving
from builders.core.objects import node, plain_pod, pod_class
from builders.etcd.server import etcd_in, store_at
from builders.wait import WAIT_SECONDS, eventually
from muster.config.settings import PLAIN_TEXT
from muster.coordinator import service
from muster.coordinator.cluster_follower import ClusterFollower
from muster.coordinator.effect_runner import Channels
from muster.coordinator.replicas import Replicas
from muster.coordinator.settings import Settings
from muster.coordinator.term import Term
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1.coordinator_pb2_grpc import CoordinatorServiceStub
from muster.etcd.election import Election
from muster.gangs.facts import Batch
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.ports import free_port
from muster.rpc.channel import open_channel
from muster.rpc.watch_codec import batch_step, snapshot_begin_step

ONE_POD = Batch(pod_classes=(pod_class(1),), nodes=(node("n", 4),), pods=(plain_pod("p"),), changed={"pods": 1})
POD_OF_NO_CLASS = Batch(pods=(replace(plain_pod("p"), node="n"),), nodes=(node("n", 4),))
"""Violates the contract of cluster-state: a class precedes its pods."""


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


def settings(etcd: EtcdProcess, cluster_state: str) -> Settings:
    nobody = f"127.0.0.1:{free_port()}"
    return Settings(
        listen=f"127.0.0.1:{free_port()}",
        instance="test",
        etcd=etcd.endpoint,
        cluster_state=cluster_state,
        placement=nobody,
        binding=nobody,
        lease_seconds=2,
    )


async def test_a_crashed_call_ends_the_term(etcd: EtcdProcess) -> None:
    stream = ClusterStream()
    stream.opens_with(ONE_POD, {"pods": 1})
    async with serving(stream) as address, store_at(etcd.endpoint) as store:
        reported = settings(etcd, address)
        election = Election(store, key="/muster/v1/leader", identity="test")
        open_, closed = open_channel(address, PLAIN_TEXT), Replicas.at(reported.placement)
        await closed.close()
        async with ClusterFollower(open_, "test") as cluster, asyncio.timeout(WAIT_SECONDS):
            term = Term(reported, Channels(open_, closed, open_), store, await election.campaign(), cluster)
            with pytest.raises(aio.UsageError):
                await term.run()
        await election.resign()
        await open_.close()


async def test_a_failed_term_is_followed_by_another(etcd: EtcdProcess) -> None:
    stream = ClusterStream()
    stream.opens_with(POD_OF_NO_CLASS, {"pods": 1})
    async with serving(stream) as address:
        reported = settings(etcd, address)
        running = asyncio.create_task(service.run(reported))
        try:
            await stream.until_subscribed(2)
            stream.opens_with(ONE_POD, {"pods": 1})
            async with aio.insecure_channel(reported.listen) as channel:

                async def known() -> bool:
                    assert not running.done()
                    return bool(await gangs(channel))

                await eventually(known)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_queries_fail_before_the_leaders_first_snapshot(
    etcd: EtcdProcess,
) -> None:
    stream = ClusterStream()
    stream.opening = [snapshot_begin_step("subscribed"), batch_step(ONE_POD)]
    async with serving(stream) as address:
        reported = settings(etcd, address)
        running = asyncio.create_task(service.run(reported))
        try:
            async with asyncio.timeout(WAIT_SECONDS), aio.insecure_channel(reported.listen) as channel:
                coordinator = CoordinatorServiceStub(channel)
                await eventually(partial(leads, channel))
                watch = coordinator.Watch(pb.WatchRequest())
                first_read = asyncio.create_task(watch.read())
                for ask in (
                    lambda: coordinator.List(pb.ListRequest(), timeout=30),
                    lambda: coordinator.Explain(pb.ExplainRequest(gang="default/p"), timeout=30),
                ):
                    with pytest.raises(aio.AioRpcError, match="has no state of the cluster yet") as refused:
                        await ask()
                    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
                assert not first_read.done()
                stream.opens_with(ONE_POD, {"pods": 1})
                stream.cut()
                first, second = await first_read, await watch.read()
                assert isinstance(first, pb.WatchResponse)
                assert isinstance(second, pb.WatchResponse)
                assert [gang.id for gang in first.gangs] == ["plain/default/p"]
                assert second.synced
                assert (await coordinator.Explain(pb.ExplainRequest(gang="default/p"), timeout=30)).gang.minimum == 1
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def leads(channel: aio.Channel) -> bool:
    """Whether the coordinator leads, without a state of the cluster."""
    try:
        await CoordinatorServiceStub(channel).List(pb.ListRequest(), timeout=30)
    except aio.AioRpcError as error:
        return "does not lead" not in str(error.details()) and "no replica leads" not in str(error.details())
    return True


async def gangs(channel: aio.Channel) -> list[str]:
    """Ids of gangs; none while no coordinator leads."""
    try:
        answer = await CoordinatorServiceStub(channel).List(pb.ListRequest(), timeout=30)
    except aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        return []
    return [gang.id for gang in answer.gangs]
