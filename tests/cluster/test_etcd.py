"""A member of etcd is lost with its volume and replaced; all are restored from a backup: as docs/operations.md says."""

from pathlib import Path

import pytest

from builders.deploy.helm import CHART, NAMESPACE
from builders.docs.pages import DOCS, block, blocks_of
from builders.wait import eventually
from cluster.gangs import gang_stream, pod
from cluster.manifests import STORAGE_CLASS
from cluster.release import JSON, Release

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800)]

PAGE = DOCS / "operations.md"
LOST = "muster-etcd-2"
ID_OF_THE_PAGE = "8211f1d0f64f3269"
GANGS_MEANWHILE = 10
PROCEDURE_SECONDS = 900.0
"""For all commands of a section, two of which wait up to four minutes."""


async def test_gangs_start_while_a_member_is_lost_and_replaced(release: Release, tmp_path: Path) -> None:
    kubectl = release.cluster.kubectl
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
        await _replace(release, tmp_path)
        await release.until_ready()
    release.figures["it is replaced"] = stream.longest


async def test_a_restore_loses_no_gang(release: Release, tmp_path: Path) -> None:
    kubectl = release.cluster.kubectl
    await release.cluster.apply([_volume_for_backups(tmp_path)])
    await release.cluster.apply([pod(f"before-{number}", "before", 2) for number in range(2)])
    await kubectl("wait", "--for=condition=Ready", "pod/before-0", "pod/before-1", "--timeout=120s")
    await release.cluster.apply([pod("half-0", "half", 2)])
    await kubectl("wait", "--for=condition=PodScheduled=False", "pod/half-0", "--timeout=60s")
    await _run(release, tmp_path, "A backup in the cluster", "backup.yaml")
    await _run(release, tmp_path, "A restore in the cluster", "restore.yaml")
    await release.until_ready()
    restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert await kubectl("get", "pods", "before-0", "before-1", "-o", restarts) == "0 0", "they kept running"
    await release.cluster.apply([pod("half-1", "half", 2)])
    await kubectl("wait", "--for=condition=Ready", "pod/half-0", "pod/half-1", "--timeout=120s")
    await kubectl("delete", "pod", "before-0", "before-1", "half-0", "half-1")


async def _replace(release: Release, directory: Path) -> None:
    section = "Replacing a member"
    (directory / "values.yaml").write_text("{}")
    _write_manifest(directory, section, "etcdctl.yaml")
    listing, replacing = _commands(section)
    members = await _shell(release, directory, listing)
    [id_] = [line.partition(",")[0] for line in members.splitlines() if f", {LOST}, " in line]
    await _shell(release, directory, replacing.replace(ID_OF_THE_PAGE, id_))


async def _run(release: Release, directory: Path, section: str, manifest: str) -> None:
    """Run the commands of a section of the page with its manifest in a file."""
    _write_manifest(directory, section, manifest)
    for commands in _commands(section):
        await _shell(release, directory, commands)


async def _shell(release: Release, directory: Path, commands: str) -> str:
    """Run commands of the page; returns their output. Raises CommandFailed, with the commands that ran."""
    return await release.cluster.run("sh", "-euxc", commands, directory=directory, seconds=PROCEDURE_SECONDS)


def _write_manifest(directory: Path, section: str, file: str) -> None:
    text = block(PAGE, section, "yaml").text
    (directory / file).write_text(text.replace("registry.example.com/muster", "muster"))


def _commands(section: str) -> list[str]:
    consoles = [each.text for each in blocks_of(PAGE) if (each.section, each.language) == (section, "console")]
    return [each.replace("deploy/helm/muster", str(CHART)) for each in consoles]


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
