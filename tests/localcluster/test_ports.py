"""Ports belong to whom they were given to, across processes."""

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
    """What a process is given that wants this port and no other."""
    child = [sys.executable, "-c", _CHILD.format(port=port)]
    return subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip()


def test_no_port_is_given_twice() -> None:
    given = [ports.free_port() for _ in range(1000)]
    assert len(set(given)) == len(given)


def test_a_seed_of_the_common_source_does_not_choose_the_ports() -> None:
    random.seed(7)
    first = [random.randint(20_000, 32_000) for _ in range(20)]
    random.seed(7)
    assert [ports.free_port() for _ in range(20)] != first


def test_another_process_is_not_given_a_port_although_nobody_listens_on_it_yet() -> None:
    assert in_another_process(ports.free_port()) == "none"


def test_a_process_that_ends_leaves_its_ports_to_others() -> None:
    port = ports.free_port()
    other = next(each for each in range(20_000, 32_000) if each != port and in_another_process(each) == str(each))
    assert in_another_process(other) == str(other)
