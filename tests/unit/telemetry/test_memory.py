"""Bytes in use, with Python's own allocator and with the image's."""

import ctypes.util
import os
import subprocess
import sys

import pytest

from muster.telemetry.memory import used_bytes

MIB = 2**20
PROGRAM = """
from muster.telemetry.memory import used_bytes
before = used_bytes()
kept = [bytes(991) for _ in range(20 * 1024)]  # blocks of 1,024 bytes
grown = used_bytes()
del kept
print(before, grown, used_bytes())
"""


def test_objects_count_while_they_exist() -> None:
    before = used_bytes()
    kept = [object() for _ in range(100_000)]
    grown = used_bytes()
    del kept
    assert grown - before > MIB
    assert used_bytes() - before < MIB


def test_under_jemalloc_all_bytes_count() -> None:
    library = ctypes.util.find_library("jemalloc")
    if library is None:
        pytest.skip("jemalloc is not installed (Debian: libjemalloc2)")
    environment = {**os.environ, "LD_PRELOAD": library, "PYTHONMALLOC": "malloc"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    before, grown, after = (int(each) for each in run.stdout.split())
    assert 19 * MIB < grown - before < 22 * MIB
    assert after - before < MIB
