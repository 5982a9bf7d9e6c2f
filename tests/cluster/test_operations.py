"""Upgrades, drains, kills and losses while gangs start all the time: none is lost, and each starts."""

import msgspec
import pytest

from builders.deploy.helm import CHART, NAMESPACE, RELEASE
from builders.wait import eventually, latency
from cluster.gangs import gang_stream, pod
from cluster.node import Node
from cluster.release import Release

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(2400)]

_STOPPED_SECONDS = 60.0


KOORDINATOR = "gang.scheduling.koordinator.sh"
WAITING = {f"{KOORDINATOR}/name": "waiting", f"{KOORDINATOR}/min-available": "2", f"{KOORDINATOR}/mode": "NonStrict"}
TOO_MUCH = "100"


async def test_an_upgrade_and_a_rollback_with_gangs_in_every_phase(release: Release) -> None:
    """The gangs are in the same phases afterwards, and those that are created meanwhile start."""
    cluster = release.cluster
    there = [
        pod("gathering-0", "gathering", 2),
        *(pod(f"queued-{number}", "queued", 2, cpu=TOO_MUCH) for number in range(2)),
        pod("waiting-0", "", 0, annotations=WAITING),
        pod("waiting-1", "", 0, annotations=WAITING, cpu=TOO_MUCH),
        *(pod(f"satisfied-{number}", "satisfied", 2) for number in range(2)),
    ]
    await cluster.apply(there)
    await cluster.kubectl("wait", "--for=condition=Ready", "pod/satisfied-0", "pod/satisfied-1", "--timeout=120s")
    await _in_their_phases(release)
    async with gang_stream(cluster.kubeconfig) as stream:
        where = ("--namespace", NAMESPACE)
        await cluster.helm("upgrade", RELEASE, str(CHART), *where, "--reuse-values", "--set", "logLevel=debug")
        await release.until_ready()
        await _in_their_phases(release)
        await cluster.helm("rollback", RELEASE, *where)
        await release.until_ready()
    await _in_their_phases(release)
    release.figures["upgrade and rollback"] = stream.longest
    await cluster.apply([pod("gathering-1", "gathering", 2)])
    await cluster.kubectl("wait", "--for=condition=Ready", "pod/gathering-0", "pod/gathering-1", "--timeout=120s")
    restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert await cluster.kubectl("get", "pods", "satisfied-0", "satisfied-1", "-o", restarts) == "0 0"
    await cluster.kubectl("delete", "pod", "gathering-1", *(each["metadata"]["name"] for each in there))


async def _in_their_phases(release: Release) -> None:
    expected = {each: each for each in ("gathering", "queued", "waiting", "satisfied")}

    async def found() -> bool:
        phases = await release.phases()
        return {name: phases.get(name) for name in expected} == expected

    await eventually(found, "each gang is in the phase that its name says", every_seconds=1)


async def test_gangs_start_while_every_node_is_drained(release: Release) -> None:
    kubectl = release.cluster.kubectl
    async with gang_stream(release.cluster.kubeconfig) as stream:
        for node in release.cluster.addresses:
            # etcd's members are bound to the volumes of their nodes: the member waits for its node.
            drain = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=280s")
            await kubectl("drain", node.name, *drain)
            await kubectl("uncordon", node.name)
            await release.until_ready()
    release.figures["drain of each node"] = stream.longest


async def test_gangs_start_while_every_pod_is_killed(release: Release) -> None:
    async with gang_stream(release.cluster.kubeconfig) as stream:
        for pod in await release.pods():
            name = pod["metadata"]["name"]
            await release.cluster.kubectl("-n", NAMESPACE, "delete", "pod", name, "--grace-period=0", "--force")
            await release.until_ready()
    release.figures["kill of each pod"] = stream.longest


async def test_gangs_start_while_the_leader_s_kubelet_is_stopped_for_a_minute(release: Release) -> None:
    node = await _leader_s_node(release)
    async with gang_stream(release.cluster.kubeconfig) as stream:
        node.kubelet.freeze()
        try:
            await latency(_STOPPED_SECONDS)
        finally:
            node.kubelet.resume()
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node.address.name}", "--timeout=120s")
        await release.until_ready()
    release.figures["kubelet stopped for a minute"] = stream.longest


async def test_gangs_start_while_the_leader_s_node_is_lost(release: Release) -> None:
    """With it a member of etcd and, perhaps, half of DNS; it returns a minute later with its disk."""
    node = await _leader_s_node(release)
    async with gang_stream(release.cluster.kubeconfig) as stream:
        await node.stop()
        await latency(_STOPPED_SECONDS)
        await node.start_again()
        await release.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node.address.name}", "--timeout=120s")
        await release.until_ready()
    release.figures["node of the leader lost for a minute"] = stream.longest


async def _leader_s_node(release: Release) -> Node:
    """The node of the coordinator whose term started last."""
    pods = await release.pods("coordinator")
    logs = [await release.cluster.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"]) for pod in pods]
    lines = [[msgspec.json.decode(line) for line in log.splitlines() if line.startswith("{")] for log in logs]
    starts = [
        max((line["timestamp"] for line in each if line["event"] == "term_started"), default="") for each in lines
    ]
    return release.cluster.node(pods[starts.index(max(starts))]["spec"]["nodeName"])
