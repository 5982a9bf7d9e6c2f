"""promtool, Prometheus' own checker of rules and metrics."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def promtool(*arguments: str | Path, given: str = "") -> None:
    """Run promtool; a complaint fails the test. Skips the test if it is not installed."""
    program = shutil.which("promtool") or shutil.which("promtool", path=Path(sys.prefix) / "tools")
    if program is None:
        pytest.skip("promtool is not there: make test fetches it where apt-get is")
    done = subprocess.run([program, *arguments], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
