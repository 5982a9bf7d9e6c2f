"""A process stops in order on SIGTERM."""

import signal
import subprocess
import sys

import pytest

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
