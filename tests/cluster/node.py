"""A node: containerd, kubelet and kube-proxy in namespaces of their own for network, mounts, processes and host name.

Two of them on one machine do not notice each other: each has its own directories (node_init.OWN), its own cgroup and
its own addresses. Everything that runs there ends with the first process.
"""

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from builders.wait import eventually
from cluster import network, node_init
from cluster.network import NodeAddress
from cluster.requirements import CNI, tools
from muster.localcluster.child_process import Child
from muster.localcluster.probes import wait_until_ready

PAUSE: Final = "registry.k8s.io/pause:3.10"
VOLUMES_PER_NODE: Final = 4
_CGROUPS: Final = Path("/sys/fs/cgroup")
_SOCKET: Final = "/run/containerd/containerd.sock"
_START_SECONDS: Final = 120.0
_IMPORT_SECONDS: Final = 600.0


class GroupChild(Child):
    """A child whose signals reach its whole process group: `nsenter` is between this process and the program."""

    def send(self, number: signal.Signals) -> None:
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class Node:
    """The processes of one node."""

    def __init__(self, address: NodeAddress, directory: Path, kubeconfigs: Mapping[str, Path], authority: Path) -> None:
        """`kubeconfigs` of `kubelet` and `kube-proxy`; `authority` signs clients of the kubelet."""
        self.address, self.directory = address, directory
        self._kubeconfigs, self._authority = kubeconfigs, authority
        self._cgroup = f"/{address.namespace}"
        self._init = Child(
            f"{address.name} init",
            [
                *("nsenter", f"--net=/run/netns/{address.namespace}"),
                *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *(sys.executable, "-I", node_init.__file__, str(directory), address.name),
            ],
            directory / "init.log",
        )
        self._first = 0
        self.containerd: GroupChild
        self.kubelet: GroupChild
        self.kube_proxy: GroupChild

    async def start(self, images: list[Path]) -> None:
        """Start all but kube-proxy with an empty disk, and import the archives of images. Raises ChildDied and
        TimeoutError.
        """
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self._write_configurations()
        for number in range(VOLUMES_PER_NODE):
            (self.directory / "root/var/lib/volumes" / str(number)).mkdir(parents=True)
        await self._boot(images)

    async def start_again(self) -> None:
        """Start all after `stop`, with the disk as it is. Raises ChildDied and TimeoutError."""
        await self._boot([])
        await self.start_proxy()

    async def _boot(self, images: list[Path]) -> None:
        _create_cgroups(self._cgroup)
        (self.directory / node_init.READY).unlink(missing_ok=True)
        await self._init.start()
        async with asyncio.timeout(_START_SECONDS):
            await wait_until_ready(self._init, self._mounted)
            self._first = _child_of(self._init.pid)
            self.containerd = self._program("containerd", "--config", str(self.directory / "containerd.toml"))
            await self.containerd.start()
            await wait_until_ready(self.containerd, self._containerd_answers)
        for image in images:
            done = await self.ctr("images", "import", "--snapshotter", "overlayfs", str(image))
            assert done == 0, f"{self.address.name} cannot import {image}: see its log"
        self.kubelet = self._program(
            "kubelet",
            *("--config", str(self.directory / "kubelet.json"), "--hostname-override", self.address.name),
            *("--kubeconfig", str(self._kubeconfigs["kubelet"]), "--node-ip", self.address.ip),
            *("--root-dir", "/var/lib/kubelet"),
        )
        await self.kubelet.start()

    async def start_proxy(self) -> None:
        """Start kube-proxy, which needs the Node that the kubelet creates."""
        self.kube_proxy = self._program("kube-proxy", "--config", str(self.directory / "kube-proxy.json"))
        await self.kube_proxy.start()

    async def stop(self) -> None:
        """End every process of the node at once, containers included."""
        await self._init.kill()
        for controller in _controllers():
            for path in sorted((controller / self._cgroup[1:]).rglob("*"), reverse=True):
                if path.is_dir():
                    await eventually(partial(_removed, path), f"{path} is empty")
            await eventually(partial(_removed, controller / self._cgroup[1:]), f"{self._cgroup} is empty")

    async def ctr(self, *arguments: str) -> int:
        """Run ctr on the node; returns its exit code."""
        run = self._program("ctr", "--address", _SOCKET, "--namespace", "k8s.io", *arguments)
        await run.start()
        async with asyncio.timeout(_IMPORT_SECONDS):
            return await run.wait()

    def _program(self, name: str, *arguments: str) -> GroupChild:
        within = ("nsenter", "-t", str(self._first), "--mount", "--uts", "--ipc", "--net", "--pid", "--")
        return GroupChild(
            f"{self.address.name} {name}",
            [*within, str(tools() / name), *arguments],
            self.directory / f"{name}.log",
            environment={"PATH": f"{tools()}:/usr/sbin:/usr/bin:/sbin:/bin"},
        )

    async def _mounted(self) -> bool:
        return (self.directory / node_init.READY).exists()

    async def _containerd_answers(self) -> bool:
        return await self.ctr("version") == 0

    def _write_configurations(self) -> None:
        for name, content in (
            ("containerd.toml", _CONTAINERD),
            ("root/etc/cni/net.d/10-ptp.conflist", _json(self._cni())),
            ("kubelet.json", _json(self._kubelet())),
            ("kube-proxy.json", _json(self._kube_proxy())),
        ):
            file = self.directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)

    def _cni(self) -> dict[str, Any]:
        """Pods are connected to the node by a cable each, and routed."""
        ranges = [[{"subnet": self.address.pod_network}]]
        ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
        return {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {"type": "ptp", "ipMasq": False, "ipam": ipam},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _kubelet(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address.ip,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._authority)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup,
            "failCgroupV1": False,
            "clusterDNS": [network.DNS_IP],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "resolvConf": "",  # the cluster has no connection to other networks
            "healthzBindAddress": self.address.ip,
            "failSwapOn": False,
            "localStorageCapacityIsolation": True,
            # The disk is the machine's: its use says nothing about the node.
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "5s",
            "serializeImagePulls": False,
        }

    def _kube_proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._kubeconfigs["kube-proxy"])},
            "hostnameOverride": self.address.name,
            "mode": "iptables",
            "clusterCIDR": network.POD_NETWORK,
            "conntrack": {"maxPerCore": 0, "min": None, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "healthzBindAddress": f"{self.address.ip}:10256",
            "metricsBindAddress": f"{self.address.ip}:10249",
            "iptables": {"minSyncPeriod": "0s"},
        }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _child_of(pid: int) -> int:
    """The first process of the node: `unshare` is its parent."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _controllers() -> list[Path]:
    """The roots of the cgroup hierarchies: one in version 2, one for each controller in version 1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _create_cgroups(name: str) -> None:
    for controller in _controllers():
        group = controller / name[1:]
        group.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (controller / file).exists():
                (group / file).write_text((controller / file).read_text())


def _removed(path: Path) -> bool:
    """Remove the cgroup; False while processes in it are ending, which takes the kernel a moment."""
    with suppress(FileNotFoundError):
        try:
            path.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
    return True


_CONTAINERD: Final = f"""
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = "{_SOCKET}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{CNI}"]
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{shutil.which("runc") or "runc"}"
SystemdCgroup = false
"""
