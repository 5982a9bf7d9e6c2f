"""`muster up`: a whole cluster on this machine, gangs that start in it, and what one sees of it."""

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
from typing import TypeVar

import typer

from muster.cli.endpoints import read_endpoints
from muster.cli.errors import CliError
from muster.config.settings import KubeSettings
from muster.gangs.quantity import BadQuantity, parse_quantity
from muster.kube.session import KubeSession
from muster.localcluster.certificates import NoCertificate
from muster.localcluster.child_process import ChildDied
from muster.localcluster.manifests import BadManifest, Manifest, ManifestRefused, apply_manifests, load_manifests
from muster.localcluster.nodes import nodes_ready
from muster.localcluster.stack import API_SERVER, ETCD, Stack, StackOptions
from muster.localcluster.supervisor import supervise
from muster.localcluster.trace_forwarder import Forwarder
from muster.localcluster.trace_receiver import TraceReceiver
from muster.localcluster.up.examples import examples_in
from muster.localcluster.up.outcome import Outcome, settle
from muster.localcluster.up.state import Picture, check, follow
from muster.localcluster.up.view import LiveView, PlainView, View, print_outcome
from muster.telemetry.otlp import BadTracing, read_otlp

_START_SECONDS = 60.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


@dataclass(frozen=True)
class UpOptions:
    """What the user asked for."""

    nodes: int
    racks: int
    cpu: str
    memory: str
    placement: str
    examples: Path | None
    crds: Path
    once: bool
    as_json: bool
    timeout_seconds: float
    state_directory: Path


def run_up(options: UpOptions) -> None:
    """Run until Ctrl-C, or with `once` until the gangs are settled. Raises CliError."""
    _check_quantity("--cpu", options.cpu)
    _check_quantity("--memory", options.memory)
    try:
        manifests = load_manifests(options.examples) if options.examples else []
        crds = load_manifests(options.crds)
    except BadManifest as error:
        raise CliError(str(error), usage=True) from error
    with _alone_in(options.state_directory) as directory:
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
        self._picture = Picture()
        self._traces = TraceReceiver(directory / "traces.jsonl", forwarder=_forwarder(self._tell))

    async def run(self) -> Outcome | None:
        stopping = asyncio.Event()
        for number in _STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await self._traces.start()
        stack = self._stack()
        if stack.quota_webhook is None:
            self._tell("no quota is reserved for PodGroups: that needs openssl, which is not installed")
        try:
            return await _first_of(stopping.wait(), self._work(stack))
        except (ChildDied, ManifestRefused, NoCertificate) as error:
            raise CliError(str(error)) from error
        except TimeoutError as error:
            raise CliError(
                f"not everything was ready within {_START_SECONDS:g} s",
                hint=f"the logs are in {self._directory / 'logs'}",
            ) from error
        finally:
            self._tell("stopping")
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
                placement=self._options.placement,
                otlp_endpoint=self._traces.url,
                quota=True,
            )
        )

    async def _work(self, stack: Stack) -> Outcome | None:
        """Start everything, then go on; ends by itself only with `once`."""
        async with contextlib.AsyncExitStack() as background:
            background.push_async_callback(_cancelled, asyncio.create_task(self._view(stack).show()))
            background.push_async_callback(_cancelled, asyncio.create_task(check(stack, self._picture)))
            await stack.start([ETCD, API_SERVER], timeout_seconds=_START_SECONDS)
            session = await KubeSession.connect(KubeSettings(kubeconfig=stack.kubeconfig))
            background.push_async_callback(session.close)
            await apply_manifests(session, self._crds)  # first, as on a cluster that has them: gangs need not wait
            await stack.start(timeout_seconds=_START_SECONDS)
            endpoints = stack.endpoints(self._traces.path)
            endpoints.write(self._directory)
            await apply_manifests(session, [Manifest(endpoints.config_map())])
            background.push_async_callback(
                _cancelled, asyncio.create_task(follow(stack.addresses["coordinator"], self._picture))
            )
            return await _first_of(supervise(stack, self._picture.notice), self._gangs(stack, session))

    async def _gangs(self, stack: Stack, session: KubeSession) -> Outcome | None:
        await nodes_ready(session, self._options.nodes, timeout_seconds=_START_SECONDS)
        self._picture.ready = True
        self._picture.touch()
        began = time.monotonic()
        await apply_manifests(session, self._manifests)
        if not self._options.once:
            await asyncio.Event().wait()
        return await settle(
            session,
            stack.addresses["coordinator"],
            self._picture,
            self._examples,
            began=began,
            timeout_seconds=self._options.timeout_seconds,
        )

    def _view(self, stack: Stack) -> View:
        if self._options.once or not sys.stdout.isatty():
            return PlainView(stack, self._picture, stream=sys.stderr if self._options.once else sys.stdout)
        return LiveView(stack, self._picture)

    def _tell(self, text: str) -> None:
        typer.echo(text, err=True)


def _forwarder(tell: Callable[[str], None]) -> Forwarder | None:
    """Hands spans on to where the shell wants them, besides the file that `muster trace` reads. Raises CliError."""
    try:
        settings = read_otlp(os.environ)
    except BadTracing as error:
        raise CliError(str(error), usage=True) from error
    return Forwarder(settings.target, tell) if settings is not None else None


def _check_quantity(option: str, text: str) -> None:
    """Raises CliError if a node cannot have so much."""
    try:
        amount = parse_quantity(text)
    except BadQuantity as error:
        raise CliError(f"{option}: {error}", usage=True) from error
    if amount <= 0:
        raise CliError(f"{option}: a node needs more than {text}", usage=True)


async def _first_of(endless: Awaitable[object], work: Awaitable[T]) -> T | None:
    """The outcome of `work`, or None if the other ends first. The later one is cancelled. Raises what either does."""
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
    """Cancel a task and wait until it is over; its errors have been seen or do not matter any more."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[Path]:
    """The state directory, emptied of the last run except for its traces. Raises CliError if another run uses it."""
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            endpoints = read_endpoints(directory)
            who = f" (process {endpoints.pid})" if endpoints else ""
            raise CliError(
                f"another `muster up`{who} runs with {directory}",
                hint="stop it first, or give this one a directory of its own with --state-dir",
            ) from None
        for leftover in ("etcd", "logs"):
            shutil.rmtree(directory / leftover, ignore_errors=True)
        yield directory
