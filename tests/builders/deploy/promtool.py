"""Prometheus' own tool, which says what Prometheus makes of rules."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def promtool(*arguments: str | Path, given: str = "") -> None:
    """Run it; what it complains of fails the test. Skips the test where it is not there."""
    program = shutil.which("promtool") or shutil.which("promtool", path=Path(sys.prefix) / "tools")
    if program is None:
        pytest.skip("promtool is not there: make test fetches it where apt-get is")
    done = subprocess.run([program, *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
