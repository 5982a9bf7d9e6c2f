"""A process stops in order on SIGTERM, and leaves no garbage of a workload that has gone."""

import gc
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from muster.rpc.process import collect_if_idle

WAITS = """
import asyncio, sys
from muster.rpc.process import run_async, until_stopped

async def waits(name):
    await until_stopped()
    return name

async def main():
    tasks = [asyncio.create_task(waits(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    given_up = asyncio.create_task(until_stopped())
    await asyncio.sleep(0)
    given_up.cancel()
    print("waiting", flush=True)
    names = await asyncio.gather(*tasks)
    await until_stopped()  # asked once is enough
    print(type(asyncio.get_running_loop()).__module__, *names, flush=True)
    sys.stdin.readline()
    print("drained", flush=True)

run_async(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_wakes_all_waiters_and_a_second_one_is_ignored(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        assert process.stdout.readline() == "uvloop first second\n"
        process.send_signal(number)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "drained\n"
        assert process.wait(30) == 0


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Python collects no garbage by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize(
    ("used_seconds", "objects", "collected"),
    [
        pytest.param(0.1, 2000, True, id="idle"),
        pytest.param(10.0, 2000, False, id="busy"),
        pytest.param(0.1, 0, False, id="nothing new"),
    ],
)
def test_an_idle_process_collects_its_garbage_i11(used_seconds: float, objects: int, collected: bool) -> None:
    garbage = weakref.ref(_Cycle())
    made = [[each] for each in range(objects)]
    collect_if_idle(used_seconds, 30.0)
    assert (garbage() is None) == collected
    assert len(made) == objects
