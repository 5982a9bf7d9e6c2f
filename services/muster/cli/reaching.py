"""Finds Muster in the cluster that kubectl talks to: by an address written down there, or through the API server.

    1. an address given by an option or a variable
    2. the ConfigMap kube-public/muster, which may say at which addresses it is reached from here (`muster up` does)
    3. `kubectl port-forward` to its pods, in the namespace that it runs in

Pods are chosen by the labels app.kubernetes.io/name=muster and app.kubernetes.io/component. Only the coordinator that
leads answers, so its replicas are tried in turn.
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
from muster.cli.endpoints import PUBLISHED_NAME, PUBLISHED_NAMESPACE
from muster.cli.errors import CliError
from muster.config.settings import CLUSTER_STATE_PORT, COORDINATOR_PORT
from muster.coordinator.v1.coordinator_pb2 import ListRequest

DEFAULT_NAMESPACE: Final = "muster-system"
_CALL_SECONDS: Final = 30.0
_FORWARD_SECONDS: Final = 15.0
_FORWARDING: Final = re.compile(r"Forwarding from (127\.0\.0\.1:[0-9]+) ->")
_LOG_LINE: Final = re.compile(r"[EWIF][0-9]{4} ")
_NO_NAMESPACE: Final = "."  # nothing is in it: who answers leads, and has nothing to send


def _without_log(text: str) -> str:
    """What kubectl says, and not what it logs besides."""
    lines = text.strip().splitlines()
    return "\n".join(line for line in lines if not _LOG_LINE.match(line)) or text.strip()


class Kubectl:
    """kubectl, called with the options that the user gave."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = tuple(options)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Raises CliError if there is no kubectl, or it does not end."""
        try:
            return subprocess.run(
                ["kubectl", *self._options, *arguments],
                capture_output=True,
                text=True,
                timeout=_CALL_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            raise CliError("there is no kubectl to reach the cluster with", hint="install it, or use muster") from error
        except subprocess.TimeoutExpired as error:
            raise CliError(f"kubectl {' '.join(arguments)} did not end within {_CALL_SECONDS:g} s") from error

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Let it run; its output is to be read."""
        return subprocess.Popen(
            ["kubectl", *self._options, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def namespace(self) -> str:
        """That of the context."""
        return self.run("config", "view", "--minify", "-o", "jsonpath={..namespace}").stdout.strip() or "default"


class Reach:
    """Ways to one cluster's Muster. `given` are addresses by the variables that would give them too."""

    def __init__(self, kubectl: Kubectl, given: Mapping[str, str]) -> None:
        self.kubectl = kubectl
        self._given = {**os.environ, **given}

    @contextlib.contextmanager
    def coordinator(self) -> Iterator[str]:
        """Address of the coordinator that leads, while the block runs. Raises CliError."""
        if address := self._given.get("MUSTER_COORDINATOR") or self._published.get("coordinator"):
            yield address
            return
        pods = self._pods("coordinator")
        for pod in pods:
            with self._forwarded(pod, COORDINATOR_PORT) as address:
                if pod == pods[-1] or _leads(address):
                    yield address
                    return

    @contextlib.contextmanager
    def cluster_state(self) -> Iterator[str]:
        """Address of a cluster-state, while the block runs. Raises CliError."""
        if address := self._given.get("MUSTER_CLUSTER_STATE") or self._published.get("cluster-state"):
            yield address
            return
        with self._forwarded(self._pods("cluster-state")[0], CLUSTER_STATE_PORT) as address:
            yield address

    def trace_file(self) -> Path | None:
        """Where a local cluster keeps its traces; None: this one does not keep them in a file here."""
        kept = self._published.get("traces", "")
        return Path(kept) if kept and Path(kept).is_file() else None

    @cached_property
    def _published(self) -> Mapping[str, str]:
        """What the ConfigMap says; nothing if there is none, or it may not be read."""
        said = self.kubectl.run("get", "configmap", PUBLISHED_NAME, "-n", PUBLISHED_NAMESPACE, "-o", "json")
        if said.returncode != 0:
            return {}
        try:
            return msgspec.json.decode(said.stdout, type=_ConfigMap).data or {}
        except msgspec.DecodeError as error:
            raise CliError(f"kubectl printed no ConfigMap: {error}") from error

    @property
    def _namespace(self) -> str:
        return self._given.get("MUSTER_NAMESPACE") or DEFAULT_NAMESPACE

    def _pods(self, component: str) -> list[str]:
        """Running pods of a service. Raises CliError if there are none."""
        labels = f"app.kubernetes.io/name=muster,app.kubernetes.io/component={component}"
        running = ("--field-selector", "status.phase=Running")
        said = self.kubectl.run("get", "pods", "-n", self._namespace, "-l", labels, *running, "-o", "name")
        if said.returncode != 0:
            raise CliError(f"kubectl cannot list Muster's pods: {_without_log(said.stderr)}")
        pods = said.stdout.split()
        if not pods:
            raise CliError(
                f"no pod in namespace {self._namespace} runs Muster's {component} (labels {labels})",
                hint=f"say in which it runs with --muster-namespace, or where it listens with --{component}",
            )
        return pods

    @contextlib.contextmanager
    def _forwarded(self, pod: str, port: int) -> Iterator[str]:
        arguments = ("port-forward", "-n", self._namespace, "--address", "127.0.0.1", pod, f":{port}")
        process = self.kubectl.start(*arguments)
        alarm = threading.Timer(_FORWARD_SECONDS, process.kill)
        alarm.start()
        try:
            assert process.stdout is not None and process.stderr is not None
            match = _FORWARDING.match(process.stdout.readline())
            alarm.cancel()
            if match is None:
                process.kill()
                raise CliError(f"kubectl cannot forward to {pod}: {process.stderr.read().strip() or 'it said nothing'}")
            yield match[1]
        finally:
            alarm.cancel()
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


def _leads(address: str) -> bool:
    async def asking() -> bool:
        async with connected(address) as stub:
            try:
                await stub.List(ListRequest(namespace=_NO_NAMESPACE), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                return error.code() is not grpc.StatusCode.UNAVAILABLE
            return True

    return asyncio.run(asking())
