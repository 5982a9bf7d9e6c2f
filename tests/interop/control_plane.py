"""A Kubernetes control plane on this machine: etcd, kube-apiserver and kube-controller-manager, as `make kubernetes`
builds them. It has no nodes.

python tests/interop/control_plane.py DIRECTORY [COMMAND ...]

Runs the command with KUBECONFIG set, or prints it and runs until Ctrl-C. DIRECTORY has the state and the logs; that of
an earlier run is emptied at the start.
"""

import argparse
import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.certificates import Authority
from muster.localcluster.child_process import Child, ChildDied
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.ports import free_port
from muster.localcluster.probes import Probe, wait_until_ready

_START_SECONDS: Final = 120.0
_GRACE_SECONDS: Final = 10.0
_CALL_SECONDS: Final = 5.0
_SERVICE_IPS: Final = "10.96.0.0/16"
_KUBERNETES_IP: Final = "10.96.0.1"
_GATES: Final = (
    "GenericWorkload=true",
    "TopologyAwareWorkloadScheduling=true",
    "PodGroupPreemptionPolicy=true",
    "CompositePodGroup=true",
    "DRAWorkloadResourceClaims=true",
)
"""Feature gates of native PodGroups (docs/native.md) and of their claims."""
_APIS: Final = ("scheduling.k8s.io/v1beta1=true", "scheduling.k8s.io/v1alpha3=true")


class NotBuilt(RuntimeError):
    """A program is missing; the message says how to build it."""


class NotEmpty(RuntimeError):
    """The directory has other files."""


@dataclass(frozen=True)
class Nodes:
    """What a control plane with kubelets needs in addition."""

    address: str
    """The API server's, HOST:PORT, which nodes reach."""
    users: Sequence[tuple[str, str, Path]]
    """Other users: name, groups separated by commas, and where their kubeconfig is written."""


class ControlPlane:
    """The processes of one control plane. Without nodes the only user is the administrator of `kubeconfig`."""

    def __init__(
        self,
        directory: Path,
        gates: Sequence[str] = (),
        *,
        durable: bool = False,
        controllers: str = "*",
        nodes: "Nodes | None" = None,
    ) -> None:
        """`gates` are added to those of native PodGroups; `durable`: etcd calls fsync; `controllers`: those of
        kube-controller-manager's option; `nodes`: what kubelets need. Raises NotBuilt.
        """
        self._nodes = nodes
        self._gates = ",".join((*_GATES, *gates))
        self._running_controllers = controllers
        self.directory = directory.absolute()
        self.kubeconfig = self.directory / "kubeconfig"
        self.etcd = EtcdProcess(self.directory / "etcd", durable=durable)
        self._authority = Authority(self.directory / "tls", "kubernetes")
        self._token = secrets.token_hex(16)
        self._address = nodes.address if nodes is not None else f"127.0.0.1:{free_port()}"
        self._controllers_port = str(free_port())
        self._signing_key = self.directory / "tls" / "service-accounts.key"
        self.api_server = Child("kube-apiserver", self._api_server_arguments(), self.directory / "api-server.log")
        self.controllers = Child(
            "kube-controller-manager", self._controller_arguments(), self.directory / "controllers.log"
        )

    async def start(self) -> None:
        """Start all processes and wait until they are ready. Raises NotEmpty, ChildDied, TimeoutError and
        NoCertificate.
        """
        if self.directory.exists() and any(self.directory.iterdir()) and not self.kubeconfig.exists():
            raise NotEmpty(f"{self.directory} has other files: name a new directory, or one of an earlier run")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True, mode=0o700)
        await self._authority.create()
        host = self._address.rpartition(":")[0]
        names = ("kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        await self._authority.issue("api-server", *names, host, _KUBERNETES_IP)
        await self._authority.issue("service-accounts")
        users = [(self._token, "admin", "system:masters", self.kubeconfig)]
        if self._nodes is not None:
            await self._authority.issue("kubelet-client")
            users += [(secrets.token_hex(16), *user) for user in self._nodes.users]
        (self.directory / "tokens.csv").write_text(
            "".join(f'{token},{user},{user},"{groups}"\n' for token, user, groups, _ in users)
        )
        for token, _, _, kubeconfig in users:
            kubeconfig.write_bytes(msgspec.json.encode(self._kubeconfig(token)))
        await self.etcd.start()
        async with asyncio.timeout(_START_SECONDS):
            await self.api_server.start()
            await wait_until_ready(self.api_server, self._answers("/readyz"))
            await self.controllers.start()
            # Pods are only admitted after the first controller has done its work.
            service_account = "/api/v1/namespaces/default/serviceaccounts/default"
            await wait_until_ready(self.controllers, self._answers(service_account))

    async def stop(self) -> None:
        """Stop all processes."""
        await self.controllers.stop(_GRACE_SECONDS)
        await self.api_server.stop(_GRACE_SECONDS)
        await self.etcd.stop()

    async def controllers_are_ready(self) -> bool:
        """Whether kube-controller-manager answers."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", int(self._controllers_port))
        except OSError:
            return False
        writer.close()
        return True

    def _api_server_arguments(self) -> list[str]:
        tls = self.directory / "tls"
        host, _, port = self._address.rpartition(":")
        return [
            program("kube-apiserver"),
            *("--etcd-servers", f"http://{self.etcd.endpoint}"),
            *("--bind-address", host, "--secure-port", port),
            *self._for_nodes(),
            *("--tls-cert-file", str(tls / "api-server.crt"), "--tls-private-key-file", str(tls / "api-server.key")),
            *("--token-auth-file", str(self.directory / "tokens.csv")),
            *("--authorization-mode", "RBAC" if self._nodes is None else "Node,RBAC"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", str(tls / "service-accounts.crt")),
            *("--service-account-signing-key-file", str(self._signing_key)),
            *("--service-cluster-ip-range", _SERVICE_IPS),
            *("--feature-gates", self._gates, "--runtime-config", ",".join(_APIS)),
            # The load of tests comes from a single user.
            "--enable-priority-and-fairness=false",
        ]

    def _for_nodes(self) -> list[str]:
        """Arguments of the API server that depend on whether there are nodes."""
        if self._nodes is None:
            return ["--endpoint-reconciler-type", "none"]  # it refuses loopback addresses
        certificate = self._authority.files("kubelet-client")
        return [
            *("--advertise-address", self._address.rpartition(":")[0]),
            *("--kubelet-client-certificate", str(certificate.certificate_file)),
            *("--kubelet-client-key", str(certificate.key_file)),
            *("--kubelet-preferred-address-types", "InternalIP"),
            "--allow-privileged",
            # Webhooks are called at the addresses of their pods: this machine has no kube-proxy.
            "--enable-aggregator-routing",
        ]

    @property
    def authority(self) -> Path:
        """The certificate of the authority of this control plane."""
        return self._authority.certificate

    def _controller_arguments(self) -> list[str]:
        return [
            program("kube-controller-manager"),
            *("--kubeconfig", str(self.kubeconfig)),
            *("--service-account-private-key-file", str(self._signing_key)),
            *("--root-ca-file", str(self._authority.certificate)),
            *("--feature-gates", self._gates),
            *("--controllers", self._running_controllers),
            "--use-service-account-credentials",
            "--leader-elect=false",  # so that it works at once after it was killed
            *("--bind-address", "127.0.0.1", "--secure-port", self._controllers_port),
            *("--kube-api-qps", "1000", "--kube-api-burst", "1000"),
        ]

    def _kubeconfig(self, token: str) -> dict[str, object]:
        cluster = {"server": f"https://{self._address}", "certificate-authority": str(self._authority.certificate)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }

    def _answers(self, path: str) -> Probe:
        """Succeeds if a GET of the administrator is answered with status 200."""

        async def probe() -> bool:
            try:
                session = await KubeSession.connect(KubeSettings(kubeconfig=self.kubeconfig))
                try:
                    return (await session.request("GET", path, timeout_seconds=_CALL_SECONDS)).status == 200
                finally:
                    await session.close()
            except OSError:
                return False

        return probe


def program(name: str) -> str:
    """Path of a program that `make kubernetes` builds. Raises NotBuilt."""
    path = Path(sys.prefix) / "tools" / name
    if not path.exists():
        raise NotBuilt(f"{name} is not built: run `make kubernetes`, which needs Go")
    return str(path)


@asynccontextmanager
async def running_control_plane(
    directory: Path, gates: Sequence[str] = (), *, durable: bool = False, controllers: str = "*"
) -> AsyncIterator[ControlPlane]:
    """A control plane that is ready."""
    plane = ControlPlane(directory, gates, durable=durable, controllers=controllers)
    try:
        await plane.start()
        yield plane
    finally:
        await plane.stop()


async def _main(directory: Path, command: list[str]) -> int:
    async with running_control_plane(directory) as plane:
        if not command:
            stopping = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stopping.set)
            print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
            await stopping.wait()
            return 0
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        )
        try:
            return await process.wait()
        except asyncio.CancelledError:  # Ctrl-C reaches the command, too
            return await process.wait()


def main() -> int:
    """Parse the command line and run; returns the command's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    try:
        return asyncio.run(_main(options.directory, options.command))
    except (NotBuilt, NotEmpty, ChildDied) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
