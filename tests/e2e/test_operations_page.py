"""docs/operations.md: its commands run in order, and its manifests match the chart.

test_restore.py runs the manual backup and restore, with gangs in the middle of starting.
"""

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from builders.deploy.chart import bare_api_server
from builders.deploy.helm import NAMESPACE, RELEASE, of_kind, rendered
from builders.docs.pages import DOCS, block, blocks_of
from builders.e2e.kubectl_plugin import program as script
from builders.etcd.server import etcdutl, fence_of
from muster.etcd.store import Store
from muster.kube.session import KubeSession
from muster.localcluster.etcd import EtcdProcess, program
from muster.localcluster.manifests import Manifest, apply_manifests
from muster.localcluster.ports import free_port
from muster.localcluster.security import Security

JSON = dict[str, Any]

PAGE: Final = DOCS / "operations.md"
ROOT: Final = DOCS.parent
SECONDS: Final = 60.0
LAST: Final = "Uninstalling"
MEMBERS: Final = 3
VALUES: Final = "image: {repository: registry.example.com/muster}\n"
RECORD: Final = "/muster/v1/gangs/some/gang"

ELSEWHERE: Final = {
    r"make setup$": "it was, or this would not run",
    r"docker push ": "there is no registry",
    r"helm test ": "test_chart.py runs it, with all of the release",
    r"kubectl muster ": "tests of the plugin run it, with a Muster to ask",
    r"kubectl .*\b(scale|rollout status|wait) ": "nothing here makes pods of Deployments; the names are checked",
    r"kubectl .*\blogs ": "nothing here runs containers; the names are checked",
    r"kubectl apply -f backup.yaml$": "the API server here has no CronJobs; what it says is checked, and run",
    r"kubectl .*\bcreate job backup-now ": "the same",
    r"etcd(ctl|utl) ": "test_restore.py runs it",
    r"sed .* etcdctl.yaml ": "nothing here runs containers; tests/cluster runs them",
    r"kubectl .*\bdelete (pod muster-etcd-2|pvc data-muster-etcd-2 --ignore)": "the same",
}
"""Commands that are not run here, with the reason."""

IMAGE_LINE: Final = re.compile(r"^make image ")


def commands() -> Iterator[tuple[str, str]]:
    """Section and command, in the order of the page; uninstalling comes last."""
    consoles = [each for each in blocks_of(PAGE) if each.language == "console"]
    for each in sorted(consoles, key=lambda each: each.section == LAST):
        for command in each.text.replace("\\\n", "").splitlines():
            yield each.section, command


def is_elsewhere(command: str) -> bool:
    return any(re.match(pattern, command) for pattern in ELSEWHERE)


def manifests(number: str = "NUMBER") -> Iterator[JSON]:
    """The manifests that the page applies."""
    for section in ("A backup in the cluster", "A restore in the cluster"):
        yield from yaml.safe_load_all(block(PAGE, section, "yaml").text.replace("NUMBER", number))


def pod_specs() -> Iterator[JSON]:
    for each in manifests("0"):
        if each["kind"] == "CronJob":
            yield each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        elif each["kind"] == "Job":
            yield each["spec"]["template"]["spec"]


def backup_template() -> JSON:
    [job] = [each for each in manifests() if each["kind"] == "CronJob"]
    template: JSON = job["spec"]["jobTemplate"]["spec"]["template"]
    return template


def one_argument(spec: JSON, name: str) -> str:
    [found] = [each for each in spec["containers"][0]["args"] if each.startswith(f"{name}=")]
    return str(found.partition("=")[2])


@pytest.fixture(scope="module")
def objects() -> list[JSON]:
    """The objects that the chart renders."""
    return rendered(VALUES)


# -- commands


def test_every_command_of_the_page_is_tested() -> None:
    output = [command for _, command in commands()]
    for pattern in ELSEWHERE:
        assert any(re.match(pattern, command) for command in output), (
            f"{pattern}: the page has no such command any more"
        )
    known = re.compile(r"(helm|kubectl|muster|make|mkdir|export|for \w+ in) ")
    for command in output:
        assert is_elsewhere(command) or known.match(command), command


def test_objects_named_in_commands_are_in_the_chart(objects: list[JSON]) -> None:
    named = {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in (*objects, *manifests("0"))}
    named |= {f"job/muster-etcd-restore-{number}" for number in range(MEMBERS)} | {"job/backup-now"}
    named |= {f"job/etcdctl-{step}" for step in ("list", "remove", "add")}
    components = {each["metadata"]["labels"].get("app.kubernetes.io/component") for each in objects}
    for _, command in commands():
        for name in re.findall(r"\b((?:deployment|statefulset|job|cronjob)/[a-z0-9-]+)", command):
            assert name in named, command
        for component in re.findall(r"app.kubernetes.io/component=([a-z-]+)", command):
            assert component in components, command
        if command.startswith(("helm", "kubectl -n")):
            assert NAMESPACE in command, command


async def test_documented_commands_print_what_the_page_shows(tmp_path: Path, objects: list[JSON]) -> None:
    where = tmp_path / "checkout"
    where.mkdir()
    for each in ROOT.iterdir():
        (where / each.name).symlink_to(each)
    (where / "values.yaml").write_text(VALUES)
    (where / "restore.yaml").write_text(block(PAGE, "A restore in the cluster", "yaml").text)
    tools = script(
        tmp_path / "bin" / "muster", f'#!/bin/sh\nexec "{Path(program("etcd")).parents[1]}/bin/muster" "$@"\n'
    )
    async with bare_api_server(tmp_path) as (kubeconfig, session):
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "KUBECONFIG": str(kubeconfig),
            "HELM_CACHE_HOME": str(tmp_path),
            "PATH": f"{tools.parent}{os.pathsep}{Path(program('etcd')).parent}{os.pathsep}{os.environ['PATH']}",
        }

        async def run(command: str) -> str:
            if IMAGE_LINE.match(command):
                command = command.replace("make", "make -n", 1)  # there is no container engine to build it with
            process = await asyncio.create_subprocess_shell(
                command, cwd=where, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            output = (await asyncio.wait_for(process.communicate(), SECONDS))[0].decode()
            assert process.returncode == 0, f"{command}: {output}"
            return output

        await run(f"helm install {RELEASE} deploy/helm/muster -n {NAMESPACE} --create-namespace --values values.yaml")
        await make_claims(session, objects)
        for section, command in commands():
            if not is_elsewhere(command):
                output = await run(command)
                assert "deprecated" not in output, (section, output)
        for name in ("tls.crt", "tls.key", "ca.crt"):
            assert (tmp_path / ".config" / "muster" / name).read_text().startswith("-----BEGIN "), name
        left = await run(f"kubectl -n {NAMESPACE} get deployments,statefulsets,services,secrets,pvc -o name")
        assert not [name for name in left.split() if "muster" in name and "muster-backup" not in name], left


async def make_claims(session: KubeSession, objects: list[JSON]) -> None:
    """The volume claims that the StatefulSet of etcd would create."""
    [members] = of_kind(objects, "StatefulSet").values()
    [template] = members["spec"]["volumeClaimTemplates"]
    for number in range(members["spec"]["replicas"]):
        metadata = {
            "name": f"{template['metadata']['name']}-{members['metadata']['name']}-{number}",
            "namespace": NAMESPACE,
            "labels": template["metadata"]["labels"],
        }
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}
        await apply_manifests(session, [Manifest(claim)])


# -- manifests


def test_the_backup_reaches_etcd_and_its_volumes_exist(objects: list[JSON]) -> None:
    template = backup_template()
    policy = of_kind(objects, "NetworkPolicy")["muster-etcd"]
    allowed = [peer["podSelector"]["matchLabels"] for peer in policy["spec"]["ingress"][0]["from"]]
    assert template["metadata"]["labels"] in allowed
    secrets = of_kind(objects, "Secret")
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    mounted = secrets[volumes["etcd-tls"]["secret"]["secretName"]]
    assert {"tls.crt", "tls.key", "ca.crt"} <= mounted["data"].keys()
    [password] = template["spec"]["containers"][0]["env"]
    reference = password["valueFrom"]["secretKeyRef"]
    assert reference["key"] in secrets[reference["name"]]["data"]
    host = one_argument(template["spec"], "--endpoints").removeprefix("https://").removesuffix(":2379")
    member, service, namespace, _ = host.split(".")
    assert (member, service, namespace) == ("muster-etcd-0", "muster-etcd", NAMESPACE)


def test_restored_members_use_the_flags_they_start_with(objects: list[JSON]) -> None:
    [members] = of_kind(objects, "StatefulSet").values()
    [etcd] = members["spec"]["template"]["spec"]["containers"]
    started = dict(each.split("=", 1) for each in etcd["args"] if "=" in each)
    for number in range(MEMBERS):
        [job] = [each for each in manifests(str(number)) if each["kind"] == "Job"]
        spec = job["spec"]["template"]["spec"]
        pod = f"muster-etcd-{number}"
        for name in ("--data-dir", "--initial-cluster", "--initial-cluster-token", "--initial-advertise-peer-urls"):
            wanted = started[name].replace("$(POD_NAME)", pod)
            assert one_argument(spec, name) == wanted
        assert one_argument(spec, "--name") == pod
        assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == f"data-{pod}"
        mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
        assert mounts["data"] == {each["name"]: each["mountPath"] for each in etcd["volumeMounts"]}["data"]


def test_manifests_use_etcds_image_and_security_context(objects: list[JSON]) -> None:
    [members] = of_kind(objects, "StatefulSet").values()
    chart = members["spec"]["template"]["spec"]
    for spec in pod_specs():
        assert spec["containers"][0]["image"] == chart["containers"][0]["image"]
        assert spec["securityContext"].items() <= chart["securityContext"].items()
        assert spec["automountServiceAccountToken"] is False
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            theirs, allowed = container["securityContext"], chart["containers"][0]["securityContext"]
            assert theirs | {"runAsNonRoot": spec["securityContext"]["runAsNonRoot"]} == allowed


async def test_backup_and_restore_manifests_move_a_secured_etcd(tmp_path: Path) -> None:
    etcdutl()
    security = Security(tmp_path / "tls")
    await security.create()
    (tmp_path / "backup").mkdir()
    tls = security.tls("coordinator")
    async with EtcdProcess(tmp_path / "old", durable=False, tls=security.tls("etcd")) as old:
        async with store_at(old.endpoint, security, user=None) as store:
            await store.commit(await fence_of(store, "/muster/v1/leader"), {RECORD: b"permit"})
        await security.enable_etcd_authentication(old.endpoint)
        files = {"tls.crt": tls.certificate_file, "tls.key": tls.key_file, "ca.crt": tls.ca_file}
        for name, file in files.items():
            assert file is not None
            (tmp_path / name).symlink_to(file)
        [container] = backup_template()["spec"]["containers"]
        places = {
            one_argument({"containers": [container]}, "--endpoints"): f"https://{old.endpoint}",
            "/etc/muster/etcd": str(tmp_path),
            "/backup": str(tmp_path / "backup"),
        }
        password = (tmp_path / "tls" / "etcd-root-password").read_text().strip()
        await run_container(container, places, ETCDCTL_PASSWORD=password)

    peers = {f"muster-etcd-{number}": f"127.0.0.1:{free_port()}" for number in range(MEMBERS)}
    members = [
        EtcdProcess(tmp_path / name, durable=False, name=name, peers=peers, tls=security.tls("etcd")) for name in peers
    ]
    for number, member in enumerate(members):
        [job] = [each for each in manifests(str(number)) if each["kind"] == "Job"]
        [container] = job["spec"]["template"]["spec"]["containers"]
        places = {"/backup": str(tmp_path / "backup"), "/var/lib/etcd": str(member.directory)}
        places |= {f"{name}.muster-etcd.{NAMESPACE}.svc:2380": address for name, address in peers.items()}
        await run_container(container, places)
    try:
        await asyncio.gather(*(member.start() for member in members))
        async with store_at(",".join(member.endpoint for member in members), security) as store:
            assert await store.get_prefix("/muster/v1/gangs/") == [(RECORD, b"permit")]
    finally:
        await asyncio.gather(*(member.kill() for member in members))


@contextlib.asynccontextmanager
async def store_at(endpoints: str, security: Security, *, user: str | None = "muster") -> AsyncIterator[Store]:
    """A store opened as by the coordinator."""
    password = None if user is None else lambda: security.password_file.read_text().strip()
    store = Store(endpoints, SECONDS, tls=security.tls("coordinator"), user=user, password=password)
    try:
        yield store
    finally:
        await store.close()


async def run_container(container: JSON, places: dict[str, str], **variables: str) -> None:
    """The command with the paths and addresses of this machine."""
    arguments = list(container["args"])
    for place, here in places.items():
        arguments = [each.replace(place, here) for each in arguments]
    tool = program(Path(container["command"][0]).name)
    process = await asyncio.create_subprocess_exec(
        tool, *arguments, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = (await asyncio.wait_for(process.communicate(), SECONDS))[0].decode()
    assert process.returncode == 0, output
