"""One replica leads, another takes over, and controllers reconcile only on the leader."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from builders.e2e.faults import EVERYTHING
from builders.lifecycle.replicas import LEASE, SECONDS, LifecycleCluster
from builders.wait import eventually
from muster.kube.api_resources import NAMESPACES
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Namespace
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.service import LifecycleService
from muster.lifecycle.work_queue import WorkQueue
from muster.rpc.channel import open_channel


class Notebook:
    """A controller that records reconciled namespaces; those named "hard-..." fail at first."""

    def __init__(self, context: ControllerContext) -> None:
        self.looks: list[str] = []
        self._seen: dict[str, str] = {}
        self._failed: set[str] = set()
        self._queue = WorkQueue(
            "notebook", self._reconcile, self._all_keys, context.leadership, context.informers, namespace_of=str
        )
        context.informers.add_handler(NAMESPACES, self._take_in)
        books[context.settings.instance] = self

    async def run(self) -> None:
        await self._queue.run()

    async def until(self, name: str, times: int = 1) -> None:
        await eventually(lambda: self.looks.count(name) >= times, seconds=SECONDS)

    def _take_in(self, changes: ObjectChanges[Namespace]) -> None:
        for item in changes.items:
            if not isinstance(item, Removed):
                self._seen[item.metadata.uid] = item.metadata.name
                self._queue.add(item.metadata.name)

    def _all_keys(self) -> Iterable[str]:
        return self._seen.values()

    async def _reconcile(self, name: str) -> float | None:
        self.looks.append(name)
        if name.startswith("hard") and name not in self._failed:
            self._failed.add(name)
            raise RuntimeError("it is hard")
        return 0.01 if name.startswith("again") and self.looks.count(name) < 3 else None


books: dict[str, Notebook] = {}


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def leading(service: LifecycleService) -> None:
    async with asyncio.timeout(SECONDS):
        await service.leadership.until_leading()


async def namespace(rig: LifecycleCluster, name: str) -> None:
    await rig.api.created("/api/v1/namespaces", {"metadata": {"name": name}})


async def test_the_leader_works_and_the_other_takes_over_when_it_stops(
    rig: LifecycleCluster, stack: AsyncExitStack
) -> None:
    async with rig.replica("one", [Notebook]) as first:
        await leading(first)
        standby = await stack.enter_async_context(rig.replica("two", [Notebook]))
        await namespace(rig, "early")
        await books["one"].until("early")
        assert not standby.leadership.leads
        assert books["two"].looks == []
    await leading(standby)
    await books["two"].until("early")
    assert not first.leadership.leads
    lease = (await rig.api.get(LEASE)).body["spec"]
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("two", 1)


async def test_a_leader_that_is_cut_off_stops_before_another_one_starts(rig: LifecycleCluster) -> None:
    async with rig.replica("cut-off", [Notebook], faulty=True) as first:
        await leading(first)
        async with rig.replica("two", [Notebook]) as second:
            with rig.faults.cut(EVERYTHING):
                await leading(second)
                assert not first.leadership.leads
            await namespace(rig, "late")
            await books["two"].until("late")
            assert "late" not in books["cut-off"].looks


async def test_failed_keys_are_retried_and_requeued_keys_reconciled_again(rig: LifecycleCluster) -> None:
    async with rig.replica("one", [Notebook]) as first:
        await leading(first)
        await namespace(rig, "hard-one")
        await namespace(rig, "again-one")
        await books["one"].until("hard-one", 2)
        await books["one"].until("again-one", 3)


async def test_a_malformed_lease_is_reported_and_recreated_once_deleted(rig: LifecycleCluster) -> None:
    path = LEASE.rpartition("/")[0]
    await rig.api.created(path, {"metadata": {"name": "muster-lifecycle"}, "spec": {"holderIdentity": ["who?"]}})
    async with rig.replica("one", [Notebook]) as first:
        await rig.api.delete(LEASE)
        await leading(first)


async def test_a_lease_that_somebody_takes_or_deletes_is_noticed(rig: LifecycleCluster) -> None:
    async with rig.replica("one", [Notebook]) as first:
        await leading(first)
        await rig.api.patch(LEASE, {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1}})
        async with asyncio.timeout(SECONDS):
            await first.leadership.until_lost()
        await leading(first)
        await rig.api.delete(LEASE)
        await rig.api.until(LEASE, lambda reply: reply.status == 200 and reply.body["spec"]["holderIdentity"] == "one")


async def test_health_reports_ready_once_synced(rig: LifecycleCluster) -> None:
    async with (
        rig.replica("one", [Notebook]),
        open_channel(f"127.0.0.1:{rig.port}") as channel,
        asyncio.timeout(SECONDS),
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
        async for answer in watch:
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                break
        watch.cancel()
