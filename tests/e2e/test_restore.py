"""etcd restored from a snapshot, and an empty etcd: the commands of docs/operations.md, with gangs in transition."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from builders.docs.pages import DOCS, block
from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.faults import BINDS
from builders.e2e.world import World
from builders.etcd.server import etcdutl
from builders.gangs.manifests import gang
from muster.coordinator.v1.record_pb2 import GangRecord

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE = DOCS / "operations.md"
SECONDS = 60.0


@pytest_asyncio.fixture(loop_scope="session")
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A separate cluster: its etcd is stopped and replaced."""
    async with running_cluster(tmp_path) as cluster:
        world = World(cluster)
        yield world
        await world.clear()


async def run(section: str, directory: Path, **variables: str) -> str:
    """Run the commands of a section; returns their output."""
    path = f"{Path(etcdutl()).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("sh", "-euc", block(PAGE, section).text),
        cwd=directory,
        env={**os.environ, "PATH": path, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await asyncio.wait_for(process.communicate(), SECONDS))[0].decode()
    assert process.returncode == 0, output
    return output


async def without_etcd(cluster: Cluster) -> Path:
    """Kill the coordinator, then etcd; returns etcd's data directory."""
    await cluster.invariants.compared()
    for name in ("coordinator", "etcd"):
        await cluster.stack.kill(name)
    cluster.records.begin_anew()
    return cluster.stack.directory / "etcd" / "data"


async def test_scheduling_continues_on_a_restored_and_on_an_empty_etcd(world: World, tmp_path: Path) -> None:
    cluster = world.cluster
    await world.nodes(8, 8)
    runs, starts = gang("runs").of(2), gang("starts").of(6)
    holds = gang("holds").of(3).non_strict(900).pod_on_nodes(2, late="yes")
    later, unseen = gang("later").of(2).asking(cpu="100m"), gang("unseen").of(2).asking(cpu="100m")

    await world.create(runs, holds)
    await world.bound(runs)
    await world.phase(holds, "waiting")
    with cluster.faults.hold(BINDS, let_pass=2) as held:
        await world.create(starts)
        await world.bound(starts, count=2)
        await held.until(1)
        permit = cluster.records.present[world.here(starts).id]
        output = await run("A backup by hand", tmp_path, ETCD=cluster.stack.etcd_address)
        assert "muster.db" in output
        data = await without_etcd(cluster)
        held.drop()
    await run("A restore by hand", tmp_path)
    shutil.rmtree(data)
    (tmp_path / "restored").rename(data)
    await cluster.stack.start(["etcd", "coordinator"])

    await world.bound(starts)
    assert {pod.name: seat.node for seat in permit.seats for pod in seat.pods} == world.bound_pods(starts)
    await world.create(later)
    await world.bound(later)
    assert (await world.phase(holds, "waiting")).phase
    assert cluster.records.present[world.here(holds).id].state == GangRecord.STATE_UNPERMITTED

    shutil.rmtree(await without_etcd(cluster))
    await cluster.stack.kill("binding")  # binding knows a leader epoch that the new etcd has yet to reach
    await cluster.stack.start(["etcd", "binding", "coordinator"])
    await world.create(unseen)
    await world.bound(unseen)
    await world.satisfied(runs)
    await world.nodes(8, late="yes")
    await world.bound(holds)
