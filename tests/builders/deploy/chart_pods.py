"""A pod of the chart as a process of this machine: the command, arguments, variables and files of its container.

The tasks of the kubelet and of the cluster's network are done here: Secrets are written to files, names of Services
become addresses of this machine, and every port that the pod listens on becomes a free one.
"""

import base64
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builders.deploy.helm import JSON, NAMESPACE
from muster.localcluster.child_process import Child
from muster.localcluster.etcd import program
from muster.localcluster.ports import free_port
from muster.localcluster.probes import Probe, grpc_serving, http_ready

_HEALTH, _ETCD_METRICS = 8081, 2381
_COMPONENT = "app.kubernetes.io/component"
_HOST = re.compile(rf"([a-z0-9-]+(?:\.[a-z0-9-]+)?)\.{NAMESPACE}\.svc:([0-9]+)")
_OWN_ADDRESS = re.compile(r"(?:0\.0\.0\.0|127\.0\.0\.1):([0-9]+)")
_VARIABLE = re.compile(r"\$\(([A-Z_]+)\)")


@dataclass
class Surroundings:
    """The environment that a cluster provides to a pod."""

    directory: Path
    secrets: Mapping[str, JSON]
    addresses: Mapping[tuple[str, int], int]
    """Ports of this machine, by host and port in the cluster."""
    kubeconfig: Path | None
    """Kubeconfig with the token of the pod's account; None: it has no token."""
    data: Path | None = None
    """Directory of its persistent volume."""
    ports: dict[int, int] = field(default_factory=dict)
    """Ports of this machine that survive its restarts."""


class PodProcess:
    """One container of one pod."""

    def __init__(self, name: str, labels: Mapping[str, str], spec: JSON, around: Surroundings) -> None:
        self.name, self.component, self.spec = name, labels.get(_COMPONENT, ""), spec
        [self._container] = spec["containers"]
        self._around = around
        self._directory = around.directory / name
        self.ports = around.ports
        """Ports of this machine by ports of the container."""
        self._environment: dict[str, str] = {}
        self._set_variables()
        log = around.directory / "logs" / f"{name}.log"
        self.child = Child(name, self._command(), log, environment=self._environment)

    def port(self, of_container: int) -> int:
        """The port of this machine for a port of the container."""
        return self.ports.setdefault(of_container, free_port())

    @property
    def probe(self) -> Probe:
        """The readiness probe."""
        probe = self._container["readinessProbe"]
        if "grpc" in probe:
            assert probe["grpc"]["port"] == _HEALTH
            return grpc_serving(f"127.0.0.1:{self.port(_HEALTH)}")
        return http_ready(f"127.0.0.1:{self.port(_ETCD_METRICS)}", probe["httpGet"]["path"])

    async def start(self) -> None:
        """Write its mounted files and start the process."""
        for volume in self.spec.get("volumes") or ():
            if "secret" in volume:
                self._write_secret(volume)
        for path in self._mounts().values():
            path.mkdir(parents=True, exist_ok=True)
        await self.child.start()

    async def stop(self) -> None:
        """Send SIGTERM and wait for the termination grace period."""
        await self.child.stop(self.spec["terminationGracePeriodSeconds"])

    def refresh_secrets(self, secrets: Mapping[str, JSON]) -> None:
        """Rewrite mounted Secrets, as a kubelet does when they change."""
        self._around.secrets = secrets
        for volume in self.spec.get("volumes") or ():
            if "secret" in volume:
                self._write_secret(volume)

    # -- the kubelet's part

    def _command(self) -> list[str]:
        given = [*(self._container.get("command") or ())]
        if given == ["/usr/local/bin/etcd"]:
            command = [program("etcd"), "--unsafe-no-fsync"]
        else:
            assert not given, "the image's own entry point is muster"
            command = [sys.executable, "-m", "muster.cli"]
        return [*command, *(self._localized(argument) for argument in self._container.get("args") or ())]

    def _set_variables(self) -> None:
        fields = {"metadata.name": self.name, "metadata.namespace": NAMESPACE, "spec.nodeName": "node"}
        fields |= {"metadata.uid": f"uid-of-{self.name}", "status.podIP": "127.0.0.1"}
        for each in self._container.get("env") or ():
            source = each.get("valueFrom") or {}
            value = fields[source["fieldRef"]["fieldPath"]] if "fieldRef" in source else each["value"]
            self._environment[each["name"]] = self._localized(value)
        kubeconfig = self._around.kubeconfig
        self._environment["KUBECONFIG"] = "" if kubeconfig is None else str(kubeconfig)

    def _mounts(self) -> dict[str, Path]:
        """Directories of this machine by mount path."""
        data = self._around.data
        return {
            mount["mountPath"]: data if mount["name"] == "data" and data else self._directory / mount["name"]
            for mount in self._container.get("volumeMounts") or ()
        }

    def _localized(self, text: str) -> str:
        text = _VARIABLE.sub(lambda match: self._environment[match[1]], text)
        for path, local in sorted(self._mounts().items(), reverse=True):
            text = re.sub(rf"(^|=){re.escape(path)}(?=/|$)", rf"\g<1>{local}", text)
        text = _HOST.sub(lambda match: f"localhost:{self._around.addresses[match[1], int(match[2])]}", text)
        return _OWN_ADDRESS.sub(lambda match: f"127.0.0.1:{self.port(int(match[1]))}", text)

    def _write_secret(self, volume: JSON) -> None:
        directory = self._directory / volume["name"]
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = self._around.secrets[volume["secret"]["secretName"]]["data"]
        wanted = volume["secret"].get("items")
        keys = {item["key"]: item["path"] for item in wanted} if wanted else {key: key for key in data}
        for key, name in keys.items():
            (directory / name).write_bytes(base64.b64decode(data[key]))
