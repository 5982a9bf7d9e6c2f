"""The chart installed, upgraded and tested: real Helm, etcd with TLS and users, only the chart's permissions.

The whole release runs on this machine; tests/builders/deploy/chart.py turns its pods into processes.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import yaml

from builders.deploy.chart import SECONDS, Release, logs, released
from builders.e2e.api_requests import refused, uses
from builders.e2e.cluster import CALL_SECONDS
from builders.e2e.faults import BINDS
from builders.gangs.manifests import Workload, gang
from builders.kube.nodes import untaint_nodes
from builders.kube.watch import follow_kind
from builders.wait import eventually
from muster.cli.format import phase_word
from muster.config.settings import COORDINATOR_PORT, TlsSettings
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1.coordinator_pb2_grpc import CoordinatorServiceStub
from muster.coordinator.v1.record_pb2 import GangRecord
from muster.etcd.store import Store
from muster.localcluster.kubelets.pod_lifecycle import Kubelets
from muster.localcluster.kubelets.simulated_nodes import SimulatedNode
from muster.localcluster.manifests import Manifest, apply_manifests
from muster.rpc.channel import open_channel

JSON = dict[str, Any]

ONE_OF_EACH: JSON = {
    "clusterState": {"replicas": 1},
    "placement": {"replicas": 1, "autoscaling": {"enabled": False}},
    # limits the wait for binds that are held when the test ends
    "binding": {"replicas": 1, "extraArgs": ["--drain-seconds=1"]},
    "lifecycle": {"replicas": 1},
    # the release runs on this machine and is called by its name
    "tls": {"extraDnsNames": ["localhost"]},
}
NEXT_VERSION: JSON = {
    **ONE_OF_EACH,
    "image": {"tag": "0.2.0"},
    "logLevel": "debug",
    "etcd": {"quotaBackendBytes": 2**30},
}
RECORDS = "/muster/v1/gangs/"


class World:
    """The current nodes and pods of the release's cluster."""

    def __init__(self, release: Release) -> None:
        self.release, self.session = release, release.session
        self.pods: dict[str, JSON] = {}
        self.wrong: list[str] = []
        self._homes: dict[str, str] = {}
        self._kubelets: list[Kubelets] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(self) -> None:
        listed = asyncio.Event()
        self._tasks.add(asyncio.create_task(follow_kind(self.session, "/api/v1/pods", self._seen, listed)))
        await listed.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for kubelets in self._kubelets:
            await kubelets.stop()

    async def nodes(self, *names: str, cpu: int, **labels: str) -> None:
        """Create nodes with simulated kubelets."""
        shapes = [
            SimulatedNode(name, "10.0.0.1", cpu=str(cpu), memory="64Gi", pods=110, labels=labels) for name in names
        ]
        self._kubelets.append(Kubelets(self.session, shapes))
        await self._kubelets[-1].start()
        await untaint_nodes(self.session, *names)

    async def create(self, workload: Workload, *numbers: int) -> None:
        """Create these pods of a workload, all of them if none are given."""
        await apply_manifests(self.session, [Manifest(pod) for pod in workload.pods(*numbers)])

    def bound(self, workload: Workload) -> dict[str, str]:
        """Nodes of its bound pods by uid."""
        pods = [self.pods[name] for number in range(workload.size) if (name := workload.pod_name(number)) in self.pods]
        return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    async def until_bound(self, workload: Workload, count: int | None = None) -> None:
        wanted = workload.size if count is None else count
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.bound(workload)) >= wanted)

    def _seen(self, change: str, pod: JSON) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        if (home := self._homes.get(metadata["uid"])) and node != home:
            self.wrong.append(f"{metadata['name']} moved from {home} to {node}")
        if node:
            self._homes[metadata["uid"]] = node
        if str(pod.get("status", {}).get("reason", "")).startswith("OutOf"):
            self.wrong.append(f"{node} has no room for {metadata['name']}")
        if change == "DELETED":
            self.pods.pop(metadata["name"], None)
        else:
            self.pods[metadata["name"]] = pod
        task = asyncio.create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


@contextlib.asynccontextmanager
async def world_of(release: Release) -> AsyncIterator[World]:
    world = World(release)
    try:
        await world.follow()
        yield world
    finally:
        await world.close()


def tls_of(release: Release, secret: str) -> TlsSettings:
    """TLS settings with the certificate in a Secret of the chart."""
    files = release.secret_files(secret)
    return TlsSettings(certificate_file=files / "tls.crt", key_file=files / "tls.key", ca_file=files / "ca.crt")


async def records(release: Release) -> Mapping[str, GangRecord]:
    """The records in etcd, as the coordinator reads them."""
    tls = tls_of(release, "muster-etcd-client-tls")
    password = (release.secret_files("muster-etcd-auth") / "password").read_text()
    store = Store(release.etcd_endpoints(), CALL_SECONDS, tls=tls, user="muster", password=lambda: password)
    try:
        found = await store.get_prefix(RECORDS)
    finally:
        await store.close()
    return {key.removeprefix(RECORDS): GangRecord.FromString(value) for key, value in found}


async def until_phases(release: Release, wanted: Mapping[str, str]) -> None:
    """Wait until the leading coordinator reports these phases to a client with the users' certificate."""
    found: dict[str, str] = {}
    tls = tls_of(release, "muster-client-tls")

    async def as_wanted() -> bool:
        nonlocal found
        for pod in release.pods("coordinator"):
            channel = open_channel(f"127.0.0.1:{pod.port(COORDINATOR_PORT)}", tls, "muster-coordinator")
            async with channel:
                with contextlib.suppress(grpc.aio.AioRpcError):  # a standby
                    message = await CoordinatorServiceStub(channel).List(pb.ListRequest(), timeout=CALL_SECONDS)
                    found = {each.id: phase_word(each.phase) for each in message.gangs}
        return found == wanted

    await eventually(as_wanted, lambda: f"wanted {wanted}, found {found}", seconds=SECONDS, every_seconds=0.1)


def seats(record: GangRecord) -> dict[str, str]:
    """Permitted nodes by uid of the pod."""
    return {pod.uid: seat.node for seat in record.seats for pod in seat.pods}


def kept_secrets(release: Release) -> dict[str, JSON]:
    """The Secrets, except for Helm's own."""
    return {name: each["data"] for name, each in release.secrets.items() if not name.startswith("sh.helm")}


@pytest.mark.timeout(400)  # two installations on a machine that may be busy
async def test_an_upgrade_loses_no_permit_and_every_gang_is_bound(tmp_path: Path) -> None:
    runs = gang("runs").of(4)
    starts = gang("starts").of(6)
    holds = gang("holds").of(4).non_strict(900).pod_on_nodes(3, late="yes")
    large = gang("large").of(3).asking(cpu=8)
    lacks = gang("lacks").of(3)
    meanwhile = [gang(f"meanwhile-{number}").of(2) for number in range(4)]

    async with released(tmp_path, yaml.safe_dump(ONE_OF_EACH)) as release, world_of(release) as world:
        await world.nodes("node-0", "node-1", "node-2", cpu=8)
        await world.create(runs)
        await world.until_bound(runs)
        await world.create(holds)
        await world.create(large)
        await world.create(lacks, 0, 1)
        with release.faults.hold(BINDS, let_pass=2) as held:
            await world.create(starts)
            await world.until_bound(starts, 2)
            await held.until(1)
            phases = {runs.id: "satisfied", holds.id: "waiting", large.id: "queued", lacks.id: "gathering"}
            await until_phases(release, {**phases, starts.id: "binding"})
            permit = (await records(release))[starts.id]
            secrets = kept_secrets(release)
            processes = {pod.child.pid for pod in release.all_pods}

            upgrade = asyncio.create_task(release.upgrade(yaml.safe_dump(NEXT_VERSION)))
            for each in meanwhile:
                await asyncio.wait_for(release.replaced.get(), SECONDS)
                await world.create(each)
            await upgrade

            assert processes.isdisjoint(pod.child.pid for pod in release.all_pods), "everything was replaced"
            assert kept_secrets(release) == secrets
            held.release()
        await world.until_bound(starts)
        assert world.bound(starts) == seats(permit), "what was permitted before is what was done"
        assert (await records(release))[starts.id].permitted_unix_millis == permit.permitted_unix_millis

        await world.nodes("late-0", "late-1", "late-2", cpu=16, late="yes")
        await world.create(lacks, 2)
        for each in (*meanwhile, holds, large, lacks):
            await world.until_bound(each)
        assert not world.wrong
        assert "a gang of 2 pods runs" in await release.test()

        assert not refused(await uses(release.session))
        _nothing_secret_is_told(release)


def _nothing_secret_is_told(release: Release) -> None:
    reported = logs(release.all_pods) + "".join(
        "\0".join([*psutil.Process(pod.child.pid).cmdline(), *psutil.Process(pod.child.pid).environ().values()])
        for pod in release.all_pods
    )
    for name, data in kept_secrets(release).items():
        for key, value in data.items():
            if key not in ("tls.crt", "ca.crt"):
                secret = base64.b64decode(value).decode()
                assert secret not in reported and value not in reported, (name, key)
