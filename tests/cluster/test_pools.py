"""Two node pools in one release: the gangs of one start while the other has no coordinator."""

import pytest

from builders.deploy.helm import CHART, NAMESPACE, RELEASE
from builders.wait import eventually
from cluster.gangs import gang_stream, pod
from cluster.release import JSON, Release

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800)]

POOL = "train"
SCHEDULER = "muster-train"
GANGS_MEANWHILE = 10
NAMES = ("pooled-0", "pooled-1")


async def test_gangs_start_while_another_pool_has_no_coordinator(release: Release) -> None:
    """A node joins the pool; a gang of the pool waits for its coordinator, and starts on that node."""
    cluster = release.cluster
    kubectl, node = cluster.kubectl, cluster.addresses[0].name
    where = ("--namespace", NAMESPACE)
    pool = ("--set", f"pools[0].name={POOL}", "--set", f"pools[0].schedulerNames[0]={SCHEDULER}")
    async with gang_stream(cluster.kubeconfig) as stream:
        await cluster.helm("upgrade", RELEASE, str(CHART), *where, "--reuse-values", *pool)
        await release.until_ready()
        await kubectl("label", "node", node, f"muster.dev/pool={POOL}")
    release.figures["a pool is added"] = stream.longest
    coordinator = ("-n", NAMESPACE, "scale", f"deployment/muster-coordinator-{POOL}")
    await kubectl(*coordinator, "--replicas=0")
    await kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", _of_pool("coordinator"), "--timeout=120s")
    await cluster.apply([_in_pool(pod(name, "pooled", len(NAMES))) for name in NAMES])
    async with gang_stream(cluster.kubeconfig) as stream:
        await eventually(
            lambda: len(stream.seconds) >= GANGS_MEANWHILE, "gangs of no pool start", seconds=120, every_seconds=1
        )
    release.figures["another pool has no coordinator"] = stream.longest
    nodes = "jsonpath={.items[*].spec.nodeName}"
    assert await kubectl("get", "pods", *NAMES, "-o", nodes) == "", "it waits for its coordinator"
    await kubectl(*coordinator, "--replicas=2")
    await kubectl("wait", "--for=condition=Ready", *(f"pod/{name}" for name in NAMES), "--timeout=120s")
    assert await kubectl("get", "pods", *NAMES, "-o", nodes) == f"{node} {node}"
    await kubectl("delete", "pod", *NAMES)
    await kubectl("label", "node", node, "muster.dev/pool-")
    await cluster.helm("rollback", RELEASE, *where)
    await kubectl("-n", NAMESPACE, "wait", "--for=delete", "pod", "-l", _of_pool("binding"), "--timeout=120s")
    await release.until_ready()


def _of_pool(component: str) -> str:
    return f"app.kubernetes.io/component={component}-{POOL}"


def _in_pool(member: JSON) -> JSON:
    return {**member, "spec": {**member["spec"], "schedulerName": SCHEDULER}}
