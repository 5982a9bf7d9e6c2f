"""Allocation of ports across processes."""

import random
import subprocess
import sys

from muster.localcluster import ports

_CHILD = """
from muster.localcluster import ports
ports._FIRST = ports._LAST = {port}
try:
    print(ports.free_port())
except ports.NoFreePort:
    print("none")
"""


def in_another_process(port: int) -> str:
    """The port that another process gets if it may only have this one."""
    child = [sys.executable, "-c", _CHILD.format(port=port)]
    return subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip()


def test_no_port_is_allocated_twice() -> None:
    given = [ports.free_port() for _ in range(1000)]
    assert len(set(given)) == len(given)


def test_ports_do_not_depend_on_the_global_seed() -> None:
    random.seed(7)
    first = [random.randint(20_000, 32_000) for _ in range(20)]
    random.seed(7)
    assert [ports.free_port() for _ in range(20)] != first


def test_ports_are_reserved_across_processes() -> None:
    assert in_another_process(ports.free_port()) == "none"


def test_ports_are_released_when_the_process_ends() -> None:
    port = ports.free_port()
    other = next(each for each in range(20_000, 32_000) if each != port and in_another_process(each) == str(each))
    assert in_another_process(other) == str(other)
