"""The cluster: a control plane on this machine, nodes in namespaces, DNS, network policies and volumes.

async with running_cluster(directory, images) as cluster:
    await cluster.kubectl("get", "nodes")
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, Any, Final

import msgspec

from builders.wait import eventually
from cluster import network
from cluster.manifests import dns, network_policies, storage
from cluster.network import NodeAddress
from cluster.node import VOLUMES_PER_NODE, Node
from cluster.requirements import tools
from interop.control_plane import ControlPlane, Nodes
from interop.kube_scheduler import KubeScheduler

_COMMAND_SECONDS: Final = 300.0
_READY: Final = "300s"


class CommandFailed(AssertionError):
    """A command exited with an error; the message has its output."""


class RealCluster:
    """All processes."""

    def __init__(self, directory: Path, images: Path, nodes: int = 3) -> None:
        """`images`: directory of the archives of tools/cluster-images. Raises NotBuilt."""
        self.directory, self._images = directory.absolute(), images
        self.addresses = [NodeAddress(number) for number in range(1, nodes + 1)]
        node_users = [
            (f"system:node:{each.name}", "system:nodes", self._kubeconfig(each.name)) for each in self.addresses
        ]
        others = [(f"system:{name}", "", self._kubeconfig(name)) for name in ("kube-proxy", "kube-scheduler")]
        self.plane = ControlPlane(
            self.directory / "control-plane",
            nodes=Nodes(f"{network.HOST}:{network.API_PORT}", (*node_users, *others)),
        )
        self.kubeconfig = self.plane.kubeconfig
        self.scheduler = KubeScheduler(self.directory / "scheduler", self._kubeconfig("kube-scheduler"))
        self.nodes = [
            Node(
                address,
                self.directory / address.name,
                {"kubelet": self._kubeconfig(address.name), "kube-proxy": self._kubeconfig("kube-proxy")},
                self.plane.authority,
            )
            for address in self.addresses
        ]

    async def start(self) -> None:
        """Start everything; returns when nodes and DNS are ready. Raises ChildDied, TimeoutError and CommandFailed."""
        network.create(self.addresses)
        await self.plane.start()
        await self.scheduler.start()
        archives = sorted(self._images.glob("*.tar"))
        assert archives, f"no images in {self._images}"
        await asyncio.gather(*(node.start(archives) for node in self.nodes))
        await self.apply([*dns(), *network_policies(), *storage(self.addresses, VOLUMES_PER_NODE)])
        await eventually(self._all_nodes_exist, "all kubelets created their Nodes", every_seconds=0.5)
        await asyncio.gather(*(node.start_proxy() for node in self.nodes))
        await self.kubectl("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={_READY}")
        for each in ("deployment/coredns", "daemonset/kube-network-policies"):
            await self.kubectl("-n", "kube-system", "rollout", "status", each, f"--timeout={_READY}")

    async def stop(self) -> None:
        """End every process, and delete the network."""
        await asyncio.gather(*(node.stop() for node in self.nodes))
        await self.scheduler.stop()
        await self.plane.stop()
        network.delete(self.addresses)

    async def _all_nodes_exist(self) -> bool:
        return len((await self.get("nodes"))["items"]) == len(self.nodes)

    def node(self, name: str) -> Node:
        """The node of a name."""
        return next(node for node in self.nodes if node.address.name == name)

    async def apply(self, objects: list[dict[str, Any]]) -> None:
        """kubectl apply."""
        manifest = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})
        await self.kubectl("apply", "-f", "-", given=manifest)

    async def get(self, *arguments: str) -> Any:
        """kubectl get, decoded."""
        return msgspec.json.decode(await self.kubectl("get", *arguments, "-o", "json"))

    async def kubectl(self, *arguments: str, given: bytes | None = None) -> str:
        """Run kubectl; returns its output. Raises CommandFailed."""
        return await self.run("kubectl", *arguments, given=given)

    async def helm(self, *arguments: str) -> str:
        """Run Helm; returns its output. Raises CommandFailed."""
        return await self.run("helm", *arguments)

    async def run(
        self,
        *command: str,
        given: bytes | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
        directory: Path | None = None,
        seconds: float = _COMMAND_SECONDS,
    ) -> str:
        """Run a command with KUBECONFIG in a directory; returns its output. Raises CommandFailed, also if it does not
        end in so many seconds.
        """
        path = f"{tools()}:{sys.prefix}/bin:{os.environ['PATH']}"  # kubectl is of the version of the cluster
        with TemporaryFile() as output, TemporaryFile() as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env={**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig), **environment},
                cwd=directory,
                start_new_session=True,
            )
            ended = f"did not end in {seconds:.0f} s"
            try:
                async with asyncio.timeout(seconds):
                    await process.communicate(given)
                ended = f"exited with {process.returncode}"
            except TimeoutError:
                pass  # reported below, with what it has written
            finally:
                if process.returncode is None:  # it takes too long, or the test is interrupted
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            written, complaints = (_text(each) for each in (output, errors))
        if process.returncode != 0:
            raise CommandFailed(f"{' '.join(command)} {ended}: {complaints}{written}")
        return written

    def _kubeconfig(self, name: str) -> Path:
        """In the directory of the control plane, which empties it."""
        return self.directory / "control-plane" / f"{name}.kubeconfig"


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@asynccontextmanager
async def running_cluster(directory: Path, images: Path) -> AsyncIterator[RealCluster]:
    """A cluster that is ready."""
    cluster = RealCluster(directory, images)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
