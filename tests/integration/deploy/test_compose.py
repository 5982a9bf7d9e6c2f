"""The compose file's commands as processes: they become healthy, and a gang starts.

Not covered, since they need a container engine: the build, networks, volumes, users, and read-only file systems.
"""

import asyncio
from pathlib import Path

import msgspec

from builders.deploy.compose import ROOT, ComposeProcesses
from builders.wait import eventually
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.kubeconfigs import write_kubeconfig
from muster.localcluster.child_process import Child
from muster.localcluster.manifests import apply_manifests, load_manifests

SECONDS = 60.0
ONCE = ("identities", "objects")
STOPS_FIRST = ("coordinator", "placement", "binding", "lifecycle", "cluster-state", "kubelets", "api-server", "etcd")


async def healthy(compose: ComposeProcesses, name: str, child: Child) -> None:
    command = compose.healthcheck(name)

    async def passes() -> bool:
        assert child.running, child.died()
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait() == 0

    if command:
        await eventually(passes, f"the health check of {name} passes", seconds=120, every_seconds=0.1)


async def phases(session: KubeSession) -> set[str]:

    answer = await session.request("GET", "/api/v1/namespaces/default/pods", timeout_seconds=SECONDS)
    return {pod["status"].get("phase", "") for pod in msgspec.json.decode(answer.body)["items"]}


async def test_the_compose_file_starts_a_cluster_and_a_gang(tmp_path: Path) -> None:
    compose = ComposeProcesses(tmp_path)
    (tmp_path / "var/lib/etcd").mkdir(parents=True)
    children = {
        name: Child(name, compose.argv(name), tmp_path / f"{name}.log", environment=compose.environment(name))
        for name in compose.services
        if "profiles" not in compose.services[name]
    }

    async def run(name: str) -> None:
        await children[name].start()
        if name in ONCE:
            assert await children[name].wait() == 0, children[name].tail()

    try:
        async with asyncio.timeout(SECONDS):
            await run("identities")
            await asyncio.gather(run("etcd"), run("api-server"))
            await healthy(compose, "api-server", children["api-server"])
            await run("objects")
            rest = [name for name in children if name not in (*ONCE, "etcd", "api-server")]
            await asyncio.gather(*map(run, rest))
            for name in ["etcd", *rest]:  # one at a time: each health check starts a process
                await healthy(compose, name, children[name])
            write_kubeconfig(tmp_path / "kubeconfig", f"http://{compose.address('api-server', 6443)}", "")
            session = await KubeSession.connect(KubeSettings(kubeconfig=tmp_path / "kubeconfig"))
            try:
                await apply_manifests(session, load_manifests(ROOT / "deploy/examples/04-lightweight-labels.yaml"))

                async def all_running() -> bool:
                    return await phases(session) == {"Running"}

                await eventually(all_running, seconds=120, every_seconds=0.1)
            finally:
                await session.close()
    finally:
        for name in STOPS_FIRST:
            await children[name].stop()
