"""A member of etcd is lost with its volume; then all are restored from a backup, as docs/operations.md says."""

from pathlib import Path

import pytest

from builders.deploy.helm import NAMESPACE
from builders.docs.pages import DOCS, block, blocks_of
from builders.wait import eventually
from cluster.gangs import gang_stream, pod
from cluster.manifests import STORAGE_CLASS
from cluster.release import JSON, Release

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800)]

PAGE = DOCS / "operations.md"
BACKUP, RESTORE = "A backup in the cluster", "A restore in the cluster"
LOST = "muster-etcd-2"
GANGS_MEANWHILE = 10


async def test_a_lost_member_delays_nothing_and_a_restore_loses_no_gang(release: Release, tmp_path: Path) -> None:
    kubectl = release.cluster.kubectl
    await release.cluster.apply([_volume_for_backups(tmp_path)])
    async with gang_stream(release.cluster.kubeconfig) as stream:
        await kubectl("-n", NAMESPACE, "delete", "pvc", f"data-{LOST}", "--wait=false")
        await kubectl("-n", NAMESPACE, "delete", "pod", LOST)

        async def refused() -> bool:
            [member] = [each for each in await release.pods("etcd") if each["metadata"]["name"] == LOST] or [{}]
            statuses = member.get("status", {}).get("containerStatuses", [])
            return any(each["restartCount"] for each in statuses)

        await eventually(refused, f"{LOST} cannot join with an empty volume", seconds=120, every_seconds=1)
        started = len(stream.seconds)
        await eventually(
            lambda: len(stream.seconds) >= started + GANGS_MEANWHILE, "gangs start", seconds=120, every_seconds=1
        )
    release.figures["a member of etcd lost"] = stream.longest
    await release.cluster.apply([pod(f"before-{number}", "before", 2) for number in range(2)])
    await kubectl("wait", "--for=condition=Ready", "pod/before-0", "pod/before-1", "--timeout=120s")
    await release.cluster.apply([pod("half-0", "half", 2)])
    await kubectl("wait", "--for=condition=PodScheduled=False", "pod/half-0", "--timeout=60s")
    for section, file in ((BACKUP, "backup.yaml"), (RESTORE, "restore.yaml")):
        manifest = block(PAGE, section, "yaml").text
        (tmp_path / file).write_text(manifest.replace("registry.example.com/muster", "muster"))
        for commands in [
            each.text for each in blocks_of(PAGE) if (each.section, each.language) == (section, "console")
        ]:
            await release.cluster.run("sh", "-euc", commands, directory=tmp_path)
    await release.until_ready()
    restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert await kubectl("get", "pods", "before-0", "before-1", "-o", restarts) == "0 0", "they kept running"
    await release.cluster.apply([pod("half-1", "half", 2)])
    await kubectl("wait", "--for=condition=Ready", "pod/half-0", "pod/half-1", "--timeout=120s")
    await kubectl("delete", "pod", "before-0", "before-1", "half-0", "half-1")


def _volume_for_backups(directory: Path) -> JSON:
    """A volume that all nodes reach: they share the machine's directory."""
    shared = directory / "backups"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)  # volumes of the kind hostPath get no group
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "backups"},
        "spec": {
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": STORAGE_CLASS,
            "hostPath": {"path": str(shared)},
        },
    }
