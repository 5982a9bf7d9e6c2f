"""Child processes: start, stop, failure, and their end with the parent."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from builders.wait import eventually, yield_to_loop
from muster.localcluster.child_process import Child
from muster.localcluster.probes import always, wait_until_ready

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
FAILS = "import sys; print('no such thing: quux', file=sys.stderr); sys.exit(3)"


def python(name: str, code: str, log: Path) -> Child:
    return Child(name, [sys.executable, "-c", code], log / f"{name}.log")


async def wait_for_output(child: Child, text: str) -> None:
    await eventually(lambda: text in "\n".join(child.tail()), f"{child.name} prints {text!r}", seconds=20)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


async def wait_for_exit(pid: int) -> None:
    await eventually(lambda: not alive(pid), f"process {pid} ends", seconds=20)


async def test_stop_sends_sigterm(tmp_path: Path) -> None:
    child = python("sleeper", SLEEPS, tmp_path)
    await child.start()
    await wait_for_output(child, "up")
    await child.stop()
    assert not child.running
    assert child.returncode == -signal.SIGTERM


async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = python("stubborn", STUBBORN, tmp_path)
    await child.start()
    await wait_for_output(child, "up")
    await child.stop(grace_seconds=0.1)
    assert child.returncode == -signal.SIGKILL


async def test_it_runs_in_its_own_session(tmp_path: Path) -> None:
    child = python("sleeper", SLEEPS, tmp_path)
    await child.start()
    assert os.getsid(child.pid) == child.pid
    await child.kill()


async def test_a_failure_has_the_end_of_the_log(tmp_path: Path) -> None:
    child = python("broken", FAILS, tmp_path)
    await child.start()
    await child.wait()
    text = str(child.died())
    assert "broken exited with status 3" in text
    assert "no such thing: quux" in text


async def test_waiting_for_readiness_ends_with_a_failure(tmp_path: Path) -> None:
    child = python("broken", FAILS, tmp_path)
    await child.start()

    async def never() -> bool:
        return False

    with pytest.raises(Exception, match="broken exited with status 3"):
        await wait_until_ready(child, never)


async def test_waiting_for_readiness_ends_when_ready(tmp_path: Path) -> None:
    child = python("sleeper", SLEEPS, tmp_path)
    await child.start()
    await wait_until_ready(child, always)
    await child.kill()


async def test_a_restart_appends_to_the_log(tmp_path: Path) -> None:
    child = python("sleeper", SLEEPS, tmp_path)
    for _ in range(2):
        await child.start()
        await wait_for_output(child, "up")
        await child.kill()
    assert child.starts == 2


async def test_it_is_killed_with_its_parent(tmp_path: Path) -> None:
    supervisor = (
        "import asyncio, pathlib, sys\n"
        "from muster.localcluster.child_process import Child\n"
        "async def main():\n"
        f"    child = Child('c', [sys.executable, '-c', {SLEEPS!r}], pathlib.Path({str(tmp_path)!r}) / 'c.log')\n"
        "    await child.start()\n"
        "    while not child.tail(): await asyncio.sleep(0.01)\n"
        "    print(child.pid, flush=True)\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", supervisor, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    assert alive(pid)
    process.kill()
    await process.wait()
    await wait_for_exit(pid)


async def test_freeze_returns_when_the_process_has_stopped(tmp_path: Path) -> None:
    ticks = "import time\nwhile True: print('tick', flush=True); time.sleep(0.001)"
    child = python("ticker", ticks, tmp_path)
    await child.start()
    try:
        await wait_for_output(child, "tick")
        child.freeze()
        written = child.log.stat().st_size
        await yield_to_loop(100)
        assert child.log.stat().st_size == written
        child.resume()
        await eventually(lambda: child.log.stat().st_size > written, "the process continues")
    finally:
        await child.kill()
