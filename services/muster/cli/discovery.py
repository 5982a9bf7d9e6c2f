"""Locates Muster in the cluster that kubectl talks to.

1. an address given by an option or an environment variable
2. the ConfigMap kube-public/muster with the addresses; `muster up` creates it
3. `kubectl port-forward` to Muster's pods in its namespace

Pods are selected by the labels app.kubernetes.io/name=muster and app.kubernetes.io/component, which has the name of
their node pool as a suffix. Only the leading coordinator answers, so its replicas are tried in turn.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import grpc
import msgspec

from muster.cli.coordinator import CALL_SECONDS, connected
from muster.cli.endpoints import PUBLISHED_NAME, PUBLISHED_NAMESPACE, local_endpoints
from muster.cli.errors import CliError
from muster.config.settings import CLUSTER_STATE_PORT, COORDINATOR_PORT
from muster.coordinator.v1.coordinator_pb2 import ListRequest

DEFAULT_NAMESPACE: Final = "muster-system"
_KUBECTL_SECONDS: Final = 30.0
_FORWARD_SECONDS: Final = 15.0
_FORWARDING: Final = re.compile(r"Forwarding from (127\.0\.0\.1:[0-9]+) ->")
_LOG_LINE: Final = re.compile(r"[EWIF][0-9]{4} ")
_NO_NAMESPACE: Final = "."  # no namespace has this name: the leader answers with an empty list


class Kubectl:
    """kubectl with the user's options."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = tuple(options)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end. Raises CliError if kubectl is not installed or takes too long."""
        try:
            return subprocess.run(
                ["kubectl", *self._options, *arguments],
                capture_output=True,
                text=True,
                timeout=_KUBECTL_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            raise CliError("kubectl is not installed", hint="install it, or use the command `muster`") from error
        except subprocess.TimeoutExpired as error:
            raise CliError(f"kubectl {' '.join(arguments)} did not end within {_KUBECTL_SECONDS:g} s") from error

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it with pipes for its output."""
        return subprocess.Popen(
            ["kubectl", *self._options, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def namespace(self) -> str:
        """Namespace of the context."""
        return self.run("config", "view", "--minify", "-o", "jsonpath={..namespace}").stdout.strip() or "default"


def local_kubectl(state_directory: Path | None) -> Kubectl | None:
    """Kubectl for the local cluster; None if none runs here."""
    endpoints = local_endpoints(state_directory)
    return Kubectl(("--kubeconfig", endpoints.kubeconfig)) if endpoints is not None else None


class MusterDiscovery:
    """Addresses of Muster's services in one cluster."""

    def __init__(self, kubectl: Kubectl, given: Mapping[str, str]) -> None:
        """`given`: values of options, by the environment variables that they override."""
        self.kubectl = kubectl
        self._given = {**os.environ, **given}

    @contextlib.contextmanager
    def coordinator(self) -> Iterator[str]:
        """Address of the leading coordinator, valid within the block. Raises CliError."""
        if address := self._given.get("MUSTER_COORDINATOR") or self._published.get("coordinator"):
            yield address
            return
        pods = self._pods("coordinator")
        for pod in pods:
            with self._port_forward(pod, COORDINATOR_PORT) as address:
                if pod == pods[-1] or _leads(address):
                    yield address
                    return

    @contextlib.contextmanager
    def cluster_state(self) -> Iterator[str]:
        """Address of a cluster-state, valid within the block. Raises CliError."""
        if address := self._given.get("MUSTER_CLUSTER_STATE") or self._published.get("cluster-state"):
            yield address
            return
        with self._port_forward(self._pods("cluster-state")[0], CLUSTER_STATE_PORT) as address:
            yield address

    def trace_file(self) -> Path | None:
        """Trace file of a local cluster; None if this cluster writes none on this machine."""
        published = self._published.get("traces", "")
        return Path(published) if published and Path(published).is_file() else None

    @cached_property
    def _published(self) -> Mapping[str, str]:
        """Data of the ConfigMap; empty if it does not exist or may not be read."""
        found = self.kubectl.run("get", "configmap", PUBLISHED_NAME, "-n", PUBLISHED_NAMESPACE, "-o", "json")
        if found.returncode != 0:
            return {}
        try:
            return msgspec.json.decode(found.stdout, type=_ConfigMap).data or {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CliError(f"kubectl printed no ConfigMap: {error}") from error

    @property
    def _namespace(self) -> str:
        return self._given.get("MUSTER_NAMESPACE") or DEFAULT_NAMESPACE

    def _pods(self, component: str) -> list[str]:
        """Running pods of a service. Raises CliError if there are none."""
        pool = self._given.get("MUSTER_POOL", "")
        name = f"{component}-{pool}" if pool else component
        labels = f"app.kubernetes.io/name=muster,app.kubernetes.io/component={name}"
        running = ("--field-selector", "status.phase=Running")
        found = self.kubectl.run("get", "pods", "-n", self._namespace, "-l", labels, *running, "-o", "name")
        if found.returncode != 0:
            raise CliError(f"kubectl cannot list Muster's pods: {_without_log(found.stderr)}")
        pods = found.stdout.split()
        if not pods:
            raise CliError(
                f"no pod in namespace {self._namespace} runs Muster's {component} (labels {labels})",
                hint=f"give its namespace with --muster-namespace, its node pool with --pool, or an address with "
                f"--{component}",
            )
        return pods

    @contextlib.contextmanager
    def _port_forward(self, pod: str, port: int) -> Iterator[str]:
        arguments = ("port-forward", "-n", self._namespace, "--address", "127.0.0.1", pod, f":{port}")
        process = self.kubectl.start(*arguments)
        timeout = threading.Timer(_FORWARD_SECONDS, process.kill)
        timeout.start()
        try:
            assert process.stdout is not None and process.stderr is not None
            match = _FORWARDING.match(process.stdout.readline())
            timeout.cancel()
            if match is None:
                process.kill()
                raise CliError(f"kubectl cannot forward to {pod}: {process.stderr.read().strip() or 'no output'}")
            yield match[1]
        finally:
            timeout.cancel()
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


def _leads(address: str) -> bool:
    async def call() -> bool:
        async with connected(address) as stub:
            try:
                await stub.List(ListRequest(namespace=_NO_NAMESPACE), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                return error.code() is not grpc.StatusCode.UNAVAILABLE
            return True

    return asyncio.run(call())


def _without_log(text: str) -> str:
    """Kubectl's output without its log lines."""
    lines = text.strip().splitlines()
    return "\n".join(line for line in lines if not _LOG_LINE.match(line)) or text.strip()
