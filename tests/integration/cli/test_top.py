"""`muster top` against a coordinator and a cluster-state."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator

import pytest

from builders.console.services import Services, cluster, gang, pod, services
from builders.wait import WAIT_SECONDS, eventually
from muster.coordinator.v1 import coordinator_pb2 as pb

TRAIN = "koordinator/ml/train"


@pytest.fixture
async def there() -> AsyncIterator[Services]:
    async with services() as there:
        there.cluster.opens_with(cluster(2, (pod("a", TRAIN, on="node-0000"),)), {})
        there.coordinator.put(
            gang("koordinator/ml/small", priority=1, reason="gang ml/small cannot start: 1 of 4 members fit"),
            gang(TRAIN, reason="waits"),
            gang("coscheduling/web/done", pb.PHASE_SATISFIED),
        )
        yield there


def addresses(there: Services) -> tuple[str, ...]:
    return "--coordinator", there.coordinator_address, "--cluster-state", there.cluster_state_address


async def printed(module: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await asyncio.wait_for(process.communicate(), WAIT_SECONDS))[0].decode()
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("module", ["muster.cli", "muster.cli.kubectl"])
async def test_json_has_the_overview_and_the_queue(there: Services, module: str) -> None:
    found = json.loads(await printed(module, "top", "-o", "json", *addresses(there)))
    assert (found["queued"], found["leader"]) == (2, "coordinator-0")
    assert found["utilisation"]["cpu"] == {"allocatable": 16000, "used": 1000, "reserved": 0}
    assert [each["name"] for each in found["queue"]] == ["small", "train"]


async def test_without_a_terminal_it_is_printed_once(there: Services) -> None:
    output = await printed("muster.cli", "top", *addresses(there))
    for text in ("leader coordinator-0", "queue 2 gangs", "2 of 2 nodes usable", "1 of 16", "1 of 4 members fit"):
        assert text in output
    assert "\x1b" not in output


async def test_a_service_that_is_down_is_named(there: Services) -> None:
    """In the time that a person waits: both addresses are of one service."""
    address = there.cluster_state_address
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", "top", "--once", "--coordinator", address, "--cluster-state", address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await asyncio.wait_for(process.communicate(), WAIT_SECONDS))[0].decode()
    assert process.returncode == 1
    assert "coordinator: UNIMPLEMENTED" in output


async def test_on_a_terminal_it_follows_changes_until_q(there: Services) -> None:
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", "top", *addresses(there)),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(terminal)
    os.set_blocking(main, False)
    screen = ""

    def shows(text: str) -> bool:
        nonlocal screen
        with contextlib.suppress(BlockingIOError):
            screen += os.read(main, 65536).decode(errors="replace")
        return text in screen

    try:
        await eventually(lambda: shows("1 of 4 members fit"), lambda: screen)
        there.coordinator.put(gang("koordinator/ml/later"))
        await eventually(lambda: shows("later"), lambda: screen)
        os.write(main, b"xq")
        assert await asyncio.wait_for(process.wait(), WAIT_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(main)
