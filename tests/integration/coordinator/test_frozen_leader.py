"""The leader is frozen (SIGSTOP), the standby takes over, the old one continues: nothing is permitted or bound twice.

Real coordinator processes, real etcd, cluster-state, placement and binding, the embedded API server. Relays between the
coordinators and their peers hold a write of the old leader when it freezes and deliver it when the new one leads.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from builders.binding.service import Rig, rig
from builders.e2e.coordinators import Coordinator
from builders.e2e.faults import BINDS, Seen
from builders.etcd.history import EtcdHistory, history_of
from builders.etcd.server import etcd_in
from builders.gangs.manifests import gang
from builders.kube.client import node
from builders.net.tcp_relay import TcpRelay, relaying
from muster.binding.leader_epoch import LeaderEpochReader
from muster.clusterstate import settings as clusterstate
from muster.clusterstate.service import ClusterStateService
from muster.config.settings import PLAIN_TEXT, KubeSettings
from muster.coordinator.v1.record_pb2 import GangRecord
from muster.kube.session import KubeSession
from muster.placement.service import FULL_NAME as PLACEMENT
from muster.placement.service import PlacementServicer
from muster.placement.state.mirror import Mirror
from muster.placement.v1.placement_pb2_grpc import add_PlacementServiceServicer_to_server
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer
from muster.rpc.subscription import subscribe

SIZE = 4
GANG = "koordinator/ml/gang"
LATER = "koordinator/ml/later"


class World:
    """Two coordinators, of which the first leads, and their peers."""

    def __init__(self, muster: Rig, history: EtcdHistory, bindings: list[Seen]) -> None:
        self.muster, self.history, self.bindings = muster, history, bindings
        self.first: Coordinator
        self.second: Coordinator
        self.to_etcd: TcpRelay
        """Of the first."""
        self.to_binding: TcpRelay
        """Of the first."""
        self.to_placement: TcpRelay
        """Of the second."""
        self.uids: dict[str, str] = {}
        """Pods by name."""

    async def submit(self, name: str) -> None:
        """Create the pods of a gang."""
        pods = gang(name).of(SIZE).in_namespace("ml").asking(cpu=1).pods()
        made = await asyncio.gather(*(self.muster.kube.create("Pod", pod) for pod in pods))
        self.uids |= {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in made}

    async def until_started(self, name: str) -> None:
        """Wait until the gang's record is started."""
        gang_id = f"koordinator/ml/{name}"
        await self.history.until(
            lambda: any(each.state == GangRecord.STATE_SATISFIED for each in self.history.of(gang_id))
        )

    async def take_over(self) -> int:
        """Wait until the second leads; returns its epoch."""
        await self.second.until("this replica leads")
        await self.history.until(lambda: len(self.history.terms) == 2)
        return self.history.terms[1]

    async def go_on(self) -> None:
        """Continue the first, and wait until it knows that it lost leadership."""
        self.first.resume()
        await self.first.until("second leads")

    async def check(self) -> None:
        """Check that there was one decision per pod and that it was executed."""
        await self.submit("last")
        await self.until_started("last")
        await self.history.complete()
        of_first, of_second = self.history.terms
        for write in self.history.writes:
            if write.record is not None:
                expected = of_second if write.revision > of_second else of_first
                assert write.record.leader_epoch == expected, write
        decided: dict[str, set[str]] = {}
        for write in self.history.writes:
            for seat in write.record.seats if write.record is not None else ():
                for pod in seat.pods:
                    decided.setdefault(pod.name, set()).add(seat.node)
        assert decided.keys() == self.uids.keys()
        assert all(len(nodes) == 1 for nodes in decided.values()), "a pod was permitted twice, for different nodes"
        bound: dict[str, str] = {}
        for seen in self.bindings:
            body = msgspec.json.decode(seen.body)
            name = body["metadata"]["name"]
            assert {body["target"]["name"]} == decided[name], "somebody tried another node than was decided"
            assert body["metadata"]["uid"] == self.uids[name]
            if seen.status < 300:
                assert name not in bound, "a pod was bound twice"
                bound[name] = body["target"]["name"]
        assert bound.keys() == self.uids.keys()
        for name, found in bound.items():
            assert (await self.muster.pod(name))["spec"]["nodeName"] == found


@asynccontextmanager
async def cluster_state(config: Path) -> AsyncIterator[str]:
    kube = KubeSettings(kubeconfig=config)
    session = await KubeSession.connect(kube)
    service = ClusterStateService(session, clusterstate.Settings(listen="127.0.0.1:0", kube=kube))
    port = await service.start()
    following = asyncio.create_task(service.follow())
    try:
        yield f"127.0.0.1:{port}"
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await service.stop()
        await session.close()


@asynccontextmanager
async def placement(source: str) -> AsyncIterator[str]:
    mirror, channel = Mirror(), open_channel(source)
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "placement")
    server.add(add_PlacementServiceServicer_to_server, PlacementServicer(mirror), PLACEMENT)
    port = await server.start()
    following = asyncio.create_task(mirror.follow(lambda: subscribe(channel, "placement/test"), server.set_ready))
    try:
        yield f"127.0.0.1:{port}"
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await server.stop()
        await channel.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(etcd_in(tmp_path))
        history = await stack.enter_async_context(history_of(etcd.endpoint))
        muster = await stack.enter_async_context(rig(tmp_path))
        for number in range(3):
            await muster.kube.create("Node", node(f"node-{number}"))
            await muster.kube.patch("Node", f"node-{number}", {"spec": {"taints": None}})
        found = World(muster, history, stack.enter_context(muster.faults.seen(BINDS)))
        facts = await stack.enter_async_context(cluster_state(tmp_path / "direct"))
        solver = await stack.enter_async_context(placement(facts))
        binding = f"127.0.0.1:{muster.port}"
        found.to_etcd = await stack.enter_async_context(relaying(etcd.endpoint))
        found.to_binding = await stack.enter_async_context(relaying(binding))
        found.to_placement = await stack.enter_async_context(relaying(solver))
        found.first = Coordinator(
            "first",
            tmp_path,
            etcd=found.to_etcd.address,
            cluster_state=facts,
            placement=solver,
            binding=found.to_binding.address,
        )
        found.second = Coordinator(
            "second",
            tmp_path,
            etcd=etcd.endpoint,
            cluster_state=facts,
            placement=found.to_placement.address,
            binding=binding,
        )
        channel = open_channel(f"ipv4:{found.first.address},{found.second.address}")
        stack.push_async_callback(channel.close)
        muster.coordinators = LeaderEpochReader(channel)
        for coordinator in (found.first, found.second):
            stack.push_async_callback(coordinator.child.kill)
            await coordinator.start()
            await found.first.until("this replica leads")
        yield found


async def test_i2_pods_created_during_the_freeze_are_permitted_by_the_new_leader_only(world: World) -> None:
    await world.submit("gang")
    await world.until_started("gang")
    asked = world.to_placement.hold_requests(LATER.encode())
    world.first.freeze()
    await world.submit("later")
    epoch = await world.take_over()
    await asked.caught()
    assert not world.history.of(LATER), "both know of the gang, and nobody has permitted it"
    await world.go_on()
    asked.release()
    await world.until_started("later")
    assert {record.leader_epoch for record in world.history.of(LATER)} == {epoch}
    await world.check()


async def test_i2_a_permit_that_arrives_when_another_leads_is_rejected(world: World) -> None:
    permit = world.to_etcd.hold_requests(GANG.encode())
    await world.submit("gang")
    await permit.caught()
    world.first.freeze()
    epoch = await world.take_over()
    await world.until_started("gang")
    permit.release()
    await permit.answered()
    await world.go_on()
    assert {record.leader_epoch for record in world.history.of(GANG)} == {epoch}
    await world.check()


async def test_i2_a_permit_confirmed_too_late_is_executed_by_the_new_leader(world: World) -> None:
    answer = world.to_etcd.hold_answers(GANG.encode())
    await world.submit("gang")
    await world.history.until(lambda: world.history.of(GANG))
    world.first.freeze()
    await world.take_over()
    await world.until_started("gang")
    answer.release()
    await world.go_on()
    assert world.history.of(GANG)[0].leader_epoch == world.history.terms[0]
    await world.check()


async def test_i4_binds_that_arrive_when_another_leads_are_rejected(world: World) -> None:
    binds = world.to_binding.hold_requests(b"gang-0")
    await world.submit("gang")
    await binds.caught()
    world.first.freeze()
    await world.take_over()
    await world.until_started("gang")
    sent = len(world.bindings)
    binds.release()
    await binds.answered()
    await world.go_on()
    epochs = world.history.terms
    await world.first.until_logged(f"leader epoch {epochs[0]} is superseded: epoch {epochs[1]} leads")
    assert len(world.bindings) == sent, "what the old leader asked for never got to the API server"
    await world.check()
