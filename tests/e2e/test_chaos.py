"""A minute of faults under load: every process is killed, stopped or frozen, and every invariant holds.

MUSTER_CHAOS_SECONDS and MUSTER_CHAOS_SEED make it longer or another one; `make chaos` is the same from the shell.
"""

import json
import os
from pathlib import Path

import pytest

from chaos.chaos_run import ChaosRun, chaos_cluster

SECONDS = float(os.environ.get("MUSTER_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "6"))


@pytest.mark.timeout(SECONDS + 540)
async def test_invariants_hold_while_any_process_is_killed_i1_to_i10(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if request.config.getoption("--cluster") == "real":
        pytest.skip("every service is killed here, and other tests share the API server")
    async with chaos_cluster(tmp_path) as cluster:
        result = await ChaosRun(cluster, SEED).run(SECONDS)
    figures = json.dumps(result.figures(), indent=2)
    assert not result.violations, figures
    assert result.faults.total() >= SECONDS / 10, figures
    assert result.permits >= SECONDS, figures
    assert {"strict", "nonstrict", "group", "preemptor", "low_priority", "claiming"} <= result.started.keys(), figures
    assert result.allocations >= SECONDS / 2, figures
