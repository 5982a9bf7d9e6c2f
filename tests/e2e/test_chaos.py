"""A minute of trouble under load: every process is killed, stopped or frozen, and nothing that must hold breaks.

MUSTER_CHAOS_SECONDS and MUSTER_CHAOS_SEED make it longer or another one; `make chaos` is the same from the shell.
"""

import json
import os
from pathlib import Path

import pytest

from chaos.play import Play, ground

SECONDS = float(os.environ.get("MUSTER_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "6"))


@pytest.mark.timeout(SECONDS + 540)
async def test_any_process_may_be_killed_at_any_moment_i1_to_i10(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if request.config.getoption("--cluster") == "real":
        pytest.skip("every service is killed here, and other tests share the API server")
    async with ground(tmp_path) as cluster:
        told = await Play(cluster, SEED).run(SECONDS)
    figures = json.dumps(told.figures(), indent=2)
    assert not told.violations, figures
    assert told.blows.total() >= SECONDS / 10, figures
    assert told.permits >= SECONDS, figures
    assert {"strict", "nonstrict", "group", "preemptor", "squatter"} <= told.started.keys(), figures
