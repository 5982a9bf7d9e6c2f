"""A release of the chart on this machine: Helm installs it into the embedded API server, and the containers that a
cluster would run are processes with the permissions, certificates and arguments of the chart.

async with released(directory, values) as release:
    await release.upgrade(other_values)       # a rolling update: new pods first, then SIGTERM to old ones
    await release.test()                      # helm test
"""

import asyncio
import base64
import contextlib
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path

import msgspec

from builders.deploy.chart_pods import PodProcess, Surroundings
from builders.deploy.helm import CHART, JSON, NAMESPACE, RELEASE, program
from builders.e2e.faults import Faults
from builders.kube.watch import follow_kind
from builders.net.service_relay import ServiceRelay
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.kubeconfigs import write_kubeconfig
from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port
from muster.localcluster.probes import http_ready, wait_until_ready

SECONDS = 150.0
"""Deadline for operations that take a few seconds on an idle machine."""

_CALL_SECONDS = 60.0
_COMPONENT = "app.kubernetes.io/component"
_APPS, _BATCH = f"/apis/apps/v1/namespaces/{NAMESPACE}", f"/apis/batch/v1/namespaces/{NAMESPACE}"
_OF_ETCD = (2379, 2380, 2381)
_CORE = f"/api/v1/namespaces/{NAMESPACE}"


class Release:
    """The objects that Helm created, and the processes that run them."""

    def __init__(self, directory: Path, kubeconfig: Path, session: KubeSession) -> None:
        self.session, self.kubeconfig = session, kubeconfig
        self.faults = Faults(session)
        self._relay_port = free_port()
        self._directory = directory
        self._services: dict[tuple[str, int], ServiceRelay] = {}
        self._members: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._kubeconfigs: dict[str, Path] = {}
        self._running: defaultdict[str, list[PodProcess]] = defaultdict(list)
        """By name of the Deployment or StatefulSet."""
        self._done: set[str] = set()
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self.secrets: dict[str, JSON] = {}
        self.replaced: asyncio.Queue[str] = asyncio.Queue()
        """Names of pods whose replacement is ready, before they are stopped."""

    # -- actions of an administrator

    async def upgrade(self, values: str) -> None:
        """Runs `helm upgrade --install`; returns when all changed pods run and no others."""
        file = self._directory / "values.yaml"
        file.write_text(values)
        await self._helm("upgrade", "--install", RELEASE, str(CHART), "--create-namespace", "--values", str(file))
        await self._roll_out()

    async def test(self) -> str:
        """Runs `helm test`; returns the log of the test's pod. Raises AssertionError if it fails."""
        testing = asyncio.create_task(self._helm("test", RELEASE, "--timeout", f"{SECONDS:g}s"))
        pod = asyncio.create_task(self._run_test_pod())
        try:
            done, _ = await asyncio.wait({testing, pod}, return_when=asyncio.FIRST_COMPLETED)
            if testing in done:
                testing.result()
            output = await pod
            await testing
        finally:
            pod.cancel()
            testing.cancel()
        return output

    # -- observations

    def pods(self, component: str) -> list[PodProcess]:
        """Running pods of a component."""
        return [pod for pods in self._running.values() for pod in pods if pod.component == component]

    @property
    def all_pods(self) -> list[PodProcess]:
        return [pod for pods in self._running.values() for pod in pods]

    def address(self, service: str, port: int) -> str:
        """Address of a Service on this machine."""
        return f"localhost:{self._services[f'{RELEASE}-{service}', port].port}"

    def etcd_endpoints(self) -> str:
        """Address of etcd for a client."""
        return ",".join(f"localhost:{ports[2379]}" for _, ports in sorted(self._members.items()))

    def secret_files(self, name: str) -> Path:
        """A directory with the content of a Secret."""
        directory = self._directory / "secrets" / name
        directory.mkdir(parents=True, exist_ok=True)
        for key, value in self.secrets[name]["data"].items():
            (directory / key).write_bytes(base64.b64decode(value))
        return directory

    # -- the cluster's controllers

    async def start(self) -> None:
        await self.faults.start(self._relay_port)

    async def stop(self) -> None:
        """Stop all pods, services before etcd."""
        for pod in sorted(self.all_pods, key=lambda pod: pod.component == "etcd"):
            await pod.stop()
        await asyncio.gather(*(relay.stop() for relay in self._services.values()))
        await self.faults.close()

    async def _roll_out(self) -> None:
        self.secrets = {each["metadata"]["name"]: each for each in await self._list(f"{_CORE}/secrets")}
        for pod in self.all_pods:
            pod.refresh_secrets(self.secrets)
        for service in await self._list(f"{_CORE}/services"):
            await self._serve(service)
        sets, jobs = await self._list(f"{_APPS}/statefulsets"), await self._list(f"{_BATCH}/jobs")
        for each in sets:  # clients call them by their addresses
            for number in range(each["spec"]["replicas"]):
                for port in _OF_ETCD:
                    self._members[f"{each['metadata']['name']}-{number}"].setdefault(port, free_port())
        work: list[Awaitable[None]] = [self._deploy(each) for each in await self._list(f"{_APPS}/deployments")]
        work += [self._members_of(each) for each in sets]
        work += [self._run_job(each) for each in jobs]
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*work)

    async def _serve(self, service: JSON) -> None:
        name = service["metadata"]["name"]
        if service["spec"]["selector"][_COMPONENT] == "etcd":
            return  # members are addressed by their own names
        for port in service["spec"]["ports"]:
            if (name, port["port"]) not in self._services:
                relay = self._services[name, port["port"]] = ServiceRelay()
                await relay.start()

    async def _deploy(self, deployment: JSON) -> None:
        """Rolling update: start one pod above the replicas, then stop an old one when it is ready."""
        name, template = deployment["metadata"]["name"], deployment["spec"]["template"]
        wanted = deployment["spec"].get("replicas", 1)
        old = [pod for pod in self._running[name] if pod.spec != template["spec"]]
        new = [pod for pod in self._running[name] if pod.spec == template["spec"]]
        while len(new) < wanted:
            self._numbers[name] += 1
            pod = await self._pod(f"{name}-{self._numbers[name]}", template)
            self._running[name].append(pod)
            new.append(pod)
            await pod.start()
            await self._ready(pod)
            self._lead_to(pod)
            if old and len(new) + len(old) > wanted:
                await self._end(name, old.pop(0))
        for pod in old:
            await self._end(name, pod)

    async def _end(self, name: str, pod: PodProcess) -> None:
        self.replaced.put_nowait(pod.name)
        for (service, _), relay in self._services.items():
            if service == f"{RELEASE}-{pod.component}":
                for port in pod.ports.values():
                    relay.remove(port)
        await pod.stop()
        assert pod.child.returncode == 0, (pod.name, pod.child.returncode, pod.child.tail())
        self._running[name].remove(pod)

    def _lead_to(self, pod: PodProcess) -> None:
        for (service, port), relay in self._services.items():
            if service == f"{RELEASE}-{pod.component}" and port in pod.ports:
                relay.add(pod.ports[port])

    async def _members_of(self, members: JSON) -> None:
        """Start all members at first; later replace one after the other, the last one first."""
        name, template = members["metadata"]["name"], members["spec"]["template"]
        assert members["spec"]["podManagementPolicy"] == "Parallel"
        numbers = range(members["spec"]["replicas"])
        if not self._running[name]:
            for number in numbers:
                self._running[name].append(await self._member(name, number, template))
            await asyncio.gather(*(pod.start() for pod in self._running[name]))
            await asyncio.gather(*map(self._ready, self._running[name]))
            return
        for number in reversed(numbers):
            if self._running[name][number].spec != template["spec"]:
                await self._running[name][number].stop()
                self._running[name][number] = await self._member(name, number, template)
                await self._running[name][number].start()
                await self._ready(self._running[name][number])

    async def _member(self, name: str, number: int, template: JSON) -> PodProcess:
        pod = f"{name}-{number}"
        return await self._pod(pod, template, data=self._directory / "volumes" / pod, ports=self._members[pod])

    async def _run_job(self, job: JSON) -> None:
        name, template = job["metadata"]["name"], job["spec"]["template"]
        if name in self._done:
            return
        pod = await self._pod(name, template)
        await pod.start()
        assert await pod.child.wait() == 0, pod.child.tail()
        self._done.add(name)

    async def _run_test_pod(self) -> str:
        """Run a pod that Helm creates, and write its exit into its status."""
        made: asyncio.Queue[JSON] = asyncio.Queue()

        def seen(change: str, pod: JSON) -> None:
            if change == "ADDED" and pod["metadata"]["name"] == f"{RELEASE}-test":
                made.put_nowait(pod)

        following = asyncio.create_task(follow_kind(self.session, f"{_CORE}/pods", seen, asyncio.Event()))
        try:
            body = await made.get()
        finally:
            following.cancel()
        pod = await self._pod(body["metadata"]["name"], body)
        await pod.start()
        phase = "Succeeded" if await pod.child.wait() == 0 else "Failed"
        output = pod.child.log.read_text()
        patch = msgspec.json.encode({"status": {"phase": phase}})
        answer = await self.session.request(
            "PATCH",
            f"{_CORE}/pods/{pod.name}/status",
            body=patch,
            content_type="application/merge-patch+json",
            timeout_seconds=_CALL_SECONDS,
        )
        assert answer.status == 200, answer.body
        assert phase == "Succeeded", output
        return output

    async def _pod(
        self, name: str, template: JSON, *, data: Path | None = None, ports: dict[int, int] | None = None
    ) -> PodProcess:
        spec = template["spec"]
        token = spec.get("automountServiceAccountToken", True)
        around = Surroundings(
            self._directory / "pods",
            self.secrets,
            {
                **{key: relay.port for key, relay in self._services.items()},
                **{
                    (f"{member}.{member.rpartition('-')[0]}", port): local
                    for member, of_member in self._members.items()
                    for port, local in of_member.items()
                },
            },
            await self._kubeconfig(spec["serviceAccountName"]) if token else None,
            data,
            {} if ports is None else ports,
        )
        return PodProcess(name, template["metadata"]["labels"], spec, around)

    async def _kubeconfig(self, account: str) -> Path:
        """A kubeconfig with the account's token, through the fault injector."""
        path = self._directory / "accounts" / f"{account}.kubeconfig"
        if account not in self._kubeconfigs:
            answer = await self.session.request(
                "POST", f"{_CORE}/serviceaccounts/{account}/token", body=b"{}", timeout_seconds=_CALL_SECONDS
            )
            assert answer.status == 201, answer.body
            token = msgspec.json.decode(answer.body)["status"]["token"]
            straight = path.with_suffix(".straight")
            write_kubeconfig(straight, self.session.server, token)
            as_account = await KubeSession.connect(KubeSettings(kubeconfig=straight), connections=256)
            self.faults.identities = {**self.faults.identities, f"Bearer {token}": as_account}
            write_kubeconfig(path, f"http://127.0.0.1:{self._relay_port}", token)
            self._kubeconfigs[account] = path
        return path

    async def _ready(self, pod: PodProcess) -> None:
        await wait_until_ready(pod.child, pod.probe)

    async def _list(self, path: str) -> list[JSON]:
        answer = await self.session.request("GET", path, timeout_seconds=_CALL_SECONDS)
        assert answer.status == 200, answer.body
        items: list[JSON] = msgspec.json.decode(answer.body)["items"]
        return items

    async def _helm(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(program(), *arguments, "--namespace", NAMESPACE),
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HELM_CACHE_HOME": str(self._directory)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output = (await asyncio.wait_for(process.communicate(), SECONDS))[0].decode()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, output
        return output


@contextlib.asynccontextmanager
async def bare_api_server(directory: Path) -> AsyncIterator[tuple[Path, KubeSession]]:
    """An API server process without nodes; an administrator's kubeconfig and session."""
    address, kubeconfig = f"127.0.0.1:{free_port()}", directory / "kubeconfig"
    command = [sys.executable, "-m", "muster.localcluster.apiserver", "--listen", address]
    server = Child("api-server", [*command, "--kubeconfig-out", str(kubeconfig)], directory / "api-server.log")
    await server.start()
    try:
        async with asyncio.timeout(SECONDS):
            await wait_until_ready(server, http_ready(address, "/readyz"))
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig), connections=256)
        try:
            yield kubeconfig, session
        finally:
            await session.close()
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def released(directory: Path, values: str) -> AsyncIterator[Release]:
    """An API server without nodes, with the chart installed. Skips the test without helm."""
    program()
    async with bare_api_server(directory) as (kubeconfig, session):
        release = Release(directory, kubeconfig, session)
        try:
            await release.start()
            await release.upgrade(values)
            yield release
        finally:
            await release.stop()


def logs(pods: Iterable[PodProcess]) -> str:
    """Logs of all pods."""
    return "\n".join(pod.child.log.read_text() for pod in pods)
