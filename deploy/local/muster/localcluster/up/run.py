"""`muster up`: starts a local cluster, applies the example gangs, and shows the state until it is stopped."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import typer

from muster.cli.endpoints import read_endpoints
from muster.cli.errors import CliError
from muster.config.settings import KubeSettings
from muster.gangs.quantity import BadQuantity, parse_quantity
from muster.kube.session import KubeSession
from muster.localcluster.certificates import NoCertificate
from muster.localcluster.child_process import ChildDied
from muster.localcluster.device_classes import device_classes
from muster.localcluster.kubelets.devices.options import BadDevices, options_by_node, parse_devices
from muster.localcluster.manifests import BadManifest, Manifest, ManifestRejected, apply_manifests, load_manifests
from muster.localcluster.stack import API_SERVER, ETCD, Stack
from muster.localcluster.stack_options import StackOptions
from muster.localcluster.supervisor import supervise
from muster.localcluster.trace_forwarder import Forwarder
from muster.localcluster.trace_receiver import TraceReceiver
from muster.localcluster.up.cluster_view import ClusterView, probe_processes, watch_gangs
from muster.localcluster.up.examples import examples_in
from muster.localcluster.up.outcome import Outcome, wait_until_expected
from muster.localcluster.up.placement import Placement
from muster.localcluster.up.view import LiveView, PlainView, View, print_outcome
from muster.telemetry.otlp import BadTracing, read_otlp

_START_SECONDS = 60.0
_LIST_SECONDS = 10.0
_POLL_SECONDS = 0.1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


@dataclass(frozen=True)
class UpOptions:
    """Options of one run."""

    nodes: int
    racks: int
    cpu: str
    memory: str
    devices: tuple[str, ...]
    placement: Placement
    examples: Path | None
    crds: Path
    once: bool
    as_json: bool
    timeout_seconds: float
    state_directory: Path


def run_up(options: UpOptions) -> None:
    """Run until Ctrl-C, or with `once` until every gang is as expected. Raises CliError."""
    _check_quantity("--cpu", options.cpu)
    _check_quantity("--memory", options.memory)
    _check_devices(options)
    try:
        manifests = load_manifests(options.examples) if options.examples else []
        crds = load_manifests(options.crds)
    except BadManifest as error:
        raise CliError(str(error), usage=True) from error
    with _locked(options.state_directory) as directory:
        outcome = asyncio.run(_Up(options, directory, crds, manifests).run())
    if outcome is not None:
        print_outcome(outcome, as_json=options.as_json)
        if not outcome.as_expected:
            sys.exit(1)


class _Up:
    """One run, from an empty state directory to the end of every process."""

    def __init__(self, options: UpOptions, directory: Path, crds: list[Manifest], manifests: list[Manifest]) -> None:
        self._options, self._directory = options, directory
        self._crds, self._manifests = crds, manifests
        self._examples = examples_in(manifests)
        self._view = ClusterView()
        self._traces = TraceReceiver(directory / "traces.jsonl", forwarder=_forwarder(self._print))

    async def run(self) -> Outcome | None:
        stopping = asyncio.Event()
        for number in _STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await self._traces.start()
        stack = self._stack()
        if not stack.webhooks:
            self._print("quota for PodGroups is off: its webhook needs openssl, which is not installed")
        try:
            return await _first_of(stopping.wait(), self._work(stack))
        except (ChildDied, ManifestRejected, NoCertificate) as error:
            raise CliError(str(error)) from error
        except TimeoutError as error:
            raise CliError(
                f"the local cluster was not ready within {_START_SECONDS:g} s",
                hint=f"see the logs in {self._directory / 'logs'}",
            ) from error
        finally:
            self._print("stopping")
            await stack.stop()
            await self._traces.stop()

    def _stack(self) -> Stack:
        return Stack(
            StackOptions(
                directory=self._directory,
                nodes=self._options.nodes,
                racks=self._options.racks,
                cpu=self._options.cpu,
                memory=self._options.memory,
                devices=self._options.devices,
                placement=self._options.placement.program,
                own_placement=self._options.placement.address,
                cluster_state_listen=self._options.placement.listen,
                otlp_endpoint=self._traces.url,
                quota=True,
                console=True,
                forecast=True,
            )
        )

    async def _work(self, stack: Stack) -> Outcome | None:
        """Start all processes and supervise them; returns only with `once`."""
        async with contextlib.AsyncExitStack() as background:
            background.push_async_callback(_cancelled, asyncio.create_task(self._display(stack).show()))
            background.push_async_callback(_cancelled, asyncio.create_task(probe_processes(stack, self._view)))
            await stack.start([ETCD, API_SERVER], timeout_seconds=_START_SECONDS)
            session = await KubeSession.connect(KubeSettings(kubeconfig=stack.kubeconfig))
            background.push_async_callback(session.close)
            await apply_manifests(
                session, [*self._crds, *device_classes()]
            )  # before the services start, which then need not rediscover
            await stack.start(timeout_seconds=_START_SECONDS)
            endpoints = stack.endpoints(self._traces.path)
            endpoints.write(self._directory)
            await apply_manifests(session, [Manifest(endpoints.config_map())])
            background.push_async_callback(
                _cancelled, asyncio.create_task(watch_gangs(stack.addresses["coordinator"], self._view))
            )
            return await _first_of(supervise(stack, self._view.notice), self._apply_gangs(stack, session))

    async def _apply_gangs(self, stack: Stack, session: KubeSession) -> Outcome | None:
        await _nodes_ready(session, self._options.nodes, timeout_seconds=_START_SECONDS)
        self._view.ready = True
        self._view.touch()
        started = time.monotonic()
        await apply_manifests(session, self._manifests)
        if not self._options.once:
            await asyncio.Event().wait()
        return await wait_until_expected(
            session,
            stack.addresses["coordinator"],
            self._view,
            self._examples,
            started=started,
            timeout_seconds=self._options.timeout_seconds,
        )

    def _display(self, stack: Stack) -> View:
        if self._options.once or not sys.stdout.isatty():
            return PlainView(stack, self._view, stream=sys.stderr if self._options.once else sys.stdout)
        return LiveView(stack, self._view)

    def _print(self, text: str) -> None:
        typer.echo(text, err=True)


async def _nodes_ready(session: KubeSession, count: int, *, timeout_seconds: float) -> None:
    """Return when at least `count` nodes are ready. Raises TimeoutError."""
    async with asyncio.timeout(timeout_seconds):
        while await _count_ready(session) < count:  # noqa: ASYNC110 (another process creates them)
            await asyncio.sleep(_POLL_SECONDS)


async def _count_ready(session: KubeSession) -> int:
    response = await session.request("GET", "/api/v1/nodes", timeout_seconds=_LIST_SECONDS)
    if response.status != 200:
        return 0
    return sum(map(_is_ready, msgspec.json.decode(response.body)["items"]))


def _is_ready(node: Any) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _forwarder(report: Callable[[str], None]) -> Forwarder | None:
    """Forwarder of spans to the collector of the OTEL_* variables, besides the trace file. Raises CliError."""
    try:
        settings = read_otlp(os.environ)
    except BadTracing as error:
        raise CliError(str(error), usage=True) from error
    return Forwarder(settings.target, report) if settings is not None else None


def _check_quantity(option: str, text: str) -> None:
    """Raises CliError if a node cannot have that amount."""
    try:
        amount = parse_quantity(text)
    except BadQuantity as error:
        raise CliError(f"{option}: {error}", usage=True) from error
    if amount <= 0:
        raise CliError(f"{option} must be positive, not {text}", usage=True)


def _check_devices(options: UpOptions) -> None:
    """Raises CliError for an option that cannot be used."""
    try:
        options_by_node([parse_devices(each) for each in options.devices], options.nodes)
    except BadDevices as error:
        raise CliError(f"--devices: {error}", usage=True) from error


async def _first_of(endless: Awaitable[object], work: Awaitable[T]) -> T | None:
    """The outcome of `work`, or None if the other ends first. Cancels the later one and raises errors of both."""
    tasks = [asyncio.ensure_future(endless), asyncio.ensure_future(work)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():
            return await tasks[1]  # type: ignore[return-value]
        await tasks[0]
        return None
    finally:
        for task in tasks:
            await _cancelled(task)


async def _cancelled(task: "asyncio.Future[object]") -> None:
    """Cancel a task and wait for its end; ignore its errors."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[Path]:
    """The state directory without the previous run's logs and etcd data. Raises CliError if another run uses it."""
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            endpoints = read_endpoints(directory)
            process = f" (process {endpoints.pid})" if endpoints else ""
            raise CliError(
                f"another `muster up`{process} uses {directory}",
                hint="stop it first, or choose another directory with --state-dir",
            ) from None
        for previous in ("etcd", "logs"):
            shutil.rmtree(directory / previous, ignore_errors=True)
        yield directory
