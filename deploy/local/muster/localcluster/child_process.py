"""A child process with its output in a log file."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.rpc import parent_watchdog

_TAIL_BYTES = 16_384
_TAIL_LINES = 12  # of the log, in errors
_STOP_POLL_SECONDS = 0.001


class ChildDied(RuntimeError):
    """A process ended without being stopped; carries the end of its log."""

    def __init__(self, name: str, returncode: int, log: Path, tail: Sequence[str]) -> None:
        self.name, self.returncode, self.log, self.tail = name, returncode, log, tuple(tail)
        lines = "".join(f"\n    {line}" for line in tail)
        super().__init__(f"{name} {how_it_ended(returncode)}; the end of {log}:{lines or ' (empty)'}")


def how_it_ended(returncode: int) -> str:
    """Text for messages: "exited with status 3" or "was killed by SIGKILL"."""
    if returncode >= 0:
        return f"exited with status {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


class Child:
    """Child process in its own session, so that Ctrl-C does not reach it. It is killed when this process exits."""

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.argv, self.log = name, list(argv), log
        self.environment = dict(environment or {})
        self.should_run = False
        """Started and not stopped since: it should be running."""
        self.starts = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id of the running or last process; 0 before the first start."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        """Return code of the last process; None while it runs and before the first start."""
        return self._process.returncode if self._process else None

    async def start(self) -> None:
        """Start it; its output is appended to the log file."""
        assert not self.running, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.should_run = True
        self.starts += 1
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", parent_watchdog.__file__, str(os.getpid())),
                *self.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    async def wait(self) -> int:
        """Wait for the end of the process; returns its return code."""
        assert self._process is not None, f"{self.name} was never started"
        return await self._process.wait()

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Send SIGTERM, then SIGKILL after the grace period."""
        self.should_run = False
        if not self.running:
            return
        self.send(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), grace_seconds)
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Send SIGKILL to it and its process group."""
        self.should_run = False
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.send(signal.SIGKILL)
            await self.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; has no effect if the process has ended."""
        if self.running:  # the method of the process object would reap it and hide its status from the event loop
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def freeze(self) -> None:
        """Send SIGSTOP, and return when every thread has stopped: threads on other cores run on for a moment."""
        self.send(signal.SIGSTOP)
        while self.running and not _is_stopped(self.pid):
            time.sleep(_STOP_POLL_SECONDS)

    def resume(self) -> None:
        """Send SIGCONT."""
        self.send(signal.SIGCONT)

    def died(self) -> ChildDied:
        """The error to raise when it ended without being stopped."""
        returncode = self.returncode
        return ChildDied(self.name, -1 if returncode is None else returncode, self.log, self.tail())

    def tail(self) -> list[str]:
        """The last lines of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        except FileNotFoundError:
            return []


def _is_stopped(pid: int) -> bool:
    """Whether all threads of the process are stopped."""
    try:
        states = {stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")}
    except (FileNotFoundError, ProcessLookupError):  # a thread has ended
        return False
    return states <= {"T"}
