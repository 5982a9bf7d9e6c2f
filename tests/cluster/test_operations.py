"""What happens to a cluster in operation, while gangs start all the time: none is lost, and each starts in time."""

import msgspec
import pytest

from builders.deploy.helm import CHART, NAMESPACE, RELEASE
from builders.wait import latency
from cluster.gangs import gang_stream
from cluster.node import Node
from cluster.release import Release

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(2400)]

_STOPPED_SECONDS = 60.0


async def test_gangs_start_during_an_upgrade_and_a_rollback(release: Release) -> None:
    async with gang_stream(release.cluster.kubeconfig) as stream:
        upgrade = (
            "upgrade",
            RELEASE,
            str(CHART),
            "--namespace",
            NAMESPACE,
            "--reuse-values",
            "--set",
            "logLevel=debug",
        )
        await release.cluster.helm(*upgrade)
        await release.until_ready()
        await release.cluster.helm("rollback", RELEASE, "--namespace", NAMESPACE)
        await release.until_ready()
    release.figures["upgrade and rollback"] = stream.longest


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


async def _leader_s_node(release: Release) -> Node:
    """The node of the coordinator whose term started last."""
    pods = await release.pods("coordinator")
    logs = [await release.cluster.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"]) for pod in pods]
    lines = [[msgspec.json.decode(line) for line in log.splitlines() if line.startswith("{")] for log in logs]
    starts = [
        max((line["timestamp"] for line in each if line["event"] == "term_started"), default="") for each in lines
    ]
    return release.cluster.node(pods[starts.index(max(starts))]["spec"]["nodeName"])
