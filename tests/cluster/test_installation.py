"""The chart with its default values on a cluster with containers: what a user does first."""

import pytest

from builders.deploy.helm import NAMESPACE, RELEASE
from builders.wait import eventually
from cluster.gangs import MINIMUM, NAME, pod
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
    container = {"name": "main", "image": "muster:0.1.0", "imagePullPolicy": "Never", "command": ["sleep", "2"]}
    template = {
        "metadata": {"labels": {NAME: "four", MINIMUM: "4"}},
        "spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "four"},
        "spec": {"parallelism": 4, "completions": 4, "template": template},
    }
    await release.cluster.apply([job])
    await release.cluster.kubectl("wait", "--for=condition=complete", "job/four", "--timeout=200s")
    await release.cluster.kubectl("delete", "job", "four")


async def test_kubectl_muster_works_through_port_forward(
    release: Release, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = release.cluster
    directory = tmp_path_factory.mktemp("client")
    environment = {}
    for file, variable in (("tls.crt", "CERTIFICATE_FILE"), ("tls.key", "KEY_FILE"), ("ca.crt", "CA_FILE")):
        template = f'go-template={{{{index .data "{file}" | base64decode}}}}'
        content = await cluster.kubectl("-n", NAMESPACE, "get", "secret", "muster-client-tls", "-o", template)
        (directory / file).write_text(content)
        environment[f"MUSTER_CLI_TLS__{variable}"] = str(directory / file)
    await cluster.apply([pod("solo-0", "solo", 2)])
    try:
        gangs = await cluster.run("kubectl-muster", "gangs", "-A", environment=environment)
        assert "solo" in gangs
        assert "1 of 2 members exist" in await cluster.run("kubectl-muster", "explain", "solo", environment=environment)
        with pytest.raises(CommandFailed, match="solo has no trace: this cluster exports none"):
            await cluster.run("kubectl-muster", "trace", "solo", environment=environment)
    finally:
        await cluster.kubectl("delete", "pod", "solo-0")
