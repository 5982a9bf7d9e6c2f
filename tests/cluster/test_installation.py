"""The chart with its default values on a cluster with containers: what a user does first."""

import pytest

from builders.deploy.helm import NAMESPACE, RELEASE
from builders.wait import eventually
from cluster.gangs import MUSTER, job, pod
from cluster.real_cluster import CommandFailed
from cluster.release import Release

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1200)]


async def test_every_pod_is_ready(release: Release) -> None:
    for each in await release.pods():
        conditions = {it["type"]: it["status"] for it in each["status"]["conditions"]}
        assert conditions["Ready"] == "True", each["metadata"]


async def test_the_chart_s_own_test_passes_and_leaves_nothing(release: Release) -> None:
    output = await release.cluster.helm("test", RELEASE, "--namespace", NAMESPACE, "--timeout", "200s")
    assert "Phase:          Succeeded" in output
    assert not await release.pods("test")


async def test_replicas_are_on_different_nodes_also_after_an_upgrade(release: Release) -> None:
    await assert_spread(release)
    await release.cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment")
    await release.until_ready()
    await assert_spread(release)


async def assert_spread(release: Release) -> None:
    """No two replicas of a service share a node."""
    for component in ("cluster-state", "coordinator", "placement", "binding", "lifecycle"):
        nodes: list[str] = []

        async def settled(component: str = component, nodes: list[str] = nodes) -> bool:
            pods = await release.pods(component)
            nodes[:] = [each["spec"]["nodeName"] for each in pods if "deletionTimestamp" not in each["metadata"]]
            return len(nodes) == 2

        await eventually(settled, f"{component} has two replicas", every_seconds=1)
        assert len(set(nodes)) == 2, f"{component} is on {nodes}"


async def test_containers_run_without_rights(release: Release) -> None:
    for component in ("coordinator", "placement", "etcd"):
        [name, *_] = [each["metadata"]["name"] for each in await release.pods(component)]
        execute = ("-n", NAMESPACE, "exec", name, "--", "sh", "-c")
        status = await release.cluster.kubectl(*execute, "cat /proc/1/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == ["65532"] * 4
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2"  # a filter
        with pytest.raises(CommandFailed, match="Read-only file system"):
            await release.cluster.kubectl(*execute, "touch /opt/a")


async def test_the_first_gang_of_the_readme_starts_in_containers(release: Release) -> None:
    kubectl = release.cluster.kubectl
    await release.cluster.apply([pod("pair-0", "pair", 2)])
    await kubectl("wait", "--for=condition=PodScheduled=False", "pod/pair-0", "--timeout=60s")
    assert "1 of 2 members exist" in await kubectl("describe", "pod", "pair-0")
    await release.cluster.apply([pod("pair-1", "pair", 2)])
    await kubectl("wait", "--for=condition=Ready", "pod/pair-0", "pod/pair-1", "--timeout=120s")
    await kubectl("delete", "pod", "pair-0", "pair-1")


async def test_a_job_of_four_runs_to_completion(release: Release) -> None:
    await release.cluster.apply([job("four", 4, scheduler="muster", cpu="10m", seconds=2)])
    await release.cluster.kubectl("wait", "--for=condition=complete", "job/four", "--timeout=200s")
    await release.cluster.kubectl("delete", "job", "four")


_CONNECT = """
import socket, sys
for address in sys.argv[1:]:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print(address, "open")
    except TimeoutError:
        print(address, "closed")
"""


async def test_network_policies_are_enforced(release: Release) -> None:
    """A pod of a tenant connects to the API server only; one with the labels of etcd's client to that, too."""
    etcd = f"muster-etcd-0.muster-etcd.{NAMESPACE}.svc"
    ports = {"cluster-state": 7001, "coordinator": 7002, "placement": 7003, "binding": 7004}
    services = [f"muster-{name}.{NAMESPACE}.svc:{port}" for name, port in ports.items()]
    addresses = ["kubernetes.default.svc:443", f"{etcd}:2379", f"{etcd}:2380", *services]
    client = {f"app.kubernetes.io/{key}": "muster" for key in ("name", "instance")}
    client["app.kubernetes.io/component"] = "etcd-users"
    opened = await _open(release, "default", {}, addresses)
    assert opened == addresses[:1]
    assert await _open(release, NAMESPACE, client, addresses[1:]) == addresses[1:2]


async def _open(release: Release, namespace: str, labels: dict[str, str], addresses: list[str]) -> list[str]:
    """The addresses to which a pod with the labels can connect."""
    kubectl = release.cluster.kubectl
    container = {
        "name": "main",
        "image": MUSTER,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", _CONNECT, *addresses],
    }
    metadata = {"name": "connect", "namespace": namespace, "labels": labels}
    spec = {"restartPolicy": "Never", "containers": [container]}
    await release.cluster.apply([{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}])
    try:
        done = ("--for=jsonpath={.status.phase}=Succeeded", "pod/connect", "--timeout=120s")
        await kubectl("-n", namespace, "wait", *done)
        lines = (await kubectl("-n", namespace, "logs", "connect")).splitlines()
    finally:
        await kubectl("-n", namespace, "delete", "pod", "connect")
    results = dict(line.split() for line in lines)
    assert results.keys() == set(addresses), lines
    return [each for each in addresses if results[each] == "open"]


async def test_kubectl_muster_works_through_port_forward(release: Release) -> None:
    await release.cluster.apply([pod("solo-0", "solo", 2)])
    try:
        assert "solo" in await release.muster("gangs", "-A")
        assert "1 of 2 members exist" in await release.muster("explain", "solo")
        with pytest.raises(CommandFailed, match="solo has no trace: this cluster exports none"):
            await release.muster("trace", "solo")
    finally:
        await release.cluster.kubectl("delete", "pod", "solo-0")
