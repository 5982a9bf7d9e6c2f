"""Another placement in placement's stead, chosen by configuration: all else goes on as before."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.world import Scene
from builders.gangs.workloads import gang, plain

pytestmark = pytest.mark.asyncio(loop_scope="session")

_SECONDS = 90

PAIR = """
apiVersion: v1
kind: Pod
metadata:
  name: pair-{number}
  labels: {{pod-group.scheduling.sigs.k8s.io/name: pair, pod-group.scheduling.sigs.k8s.io/min-available: "2"}}
spec:
  schedulerName: muster
  containers: [{{name: main, image: x, resources: {{requests: {{cpu: "1"}}}}}}]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """All processes, with first-fit where placement would be."""
    async with running_cluster(tmp_path_factory.mktemp("first-fit"), placement="first-fit") as cluster:
        yield cluster


async def test_gangs_start_whole_and_wait_for_room(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a, b = gang("a").of(6), gang("b").of(4)
    await scene.create(a)
    await scene.bound(a)
    await scene.create(b)
    await scene.waits(b, "2 of 4 members fit first-fit")
    await scene.delete(a)
    await scene.bound(b)


async def test_what_it_leaves_out_is_told_to_the_user(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(2).marked({"muster.dev/topology": "node: hard pack"})
    await scene.create(a)
    await scene.waits(a, "first-fit does not support hard topology constraints; use another placement for it")
    await scene.unschedulable(a, "first-fit does not support hard topology constraints")
    single = plain("single")
    await scene.create(single)
    await scene.bound(single)


async def test_a_soft_constraint_counts_for_nothing_and_holds_nobody_up(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(6).marked({"muster.dev/topology": "node: pack"})
    await scene.create(a)
    await scene.bound(a)


async def test_nobody_is_evicted_for_a_gang_of_higher_priority(scene: Scene) -> None:
    await scene.nodes(4)
    low, high = gang("low").of(4).with_priority(0), gang("high").of(2).with_priority(10)
    await scene.create(low)
    await scene.bound(low)
    await scene.create(high)
    await scene.waits(high, "0 of 2 members fit first-fit")
    await scene.delete(low)
    await scene.bound(high)


async def test_up_runs_it_when_told_to(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "pair.yaml").write_text("---".join(PAIR.format(number=number) for number in range(2)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", "up", "--placement", "first-fit", "--nodes", "2", "--once"),
        *("--output", "json", "--examples", str(examples), "--state-dir", str(tmp_path / "state")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")},
    )
    out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    assert process.returncode == 0, err.decode()
    assert [each["bound"] for each in json.loads(out)["gangs"]] == [2]
    assert '"server":"first-fit"' in (tmp_path / "state" / "logs" / "placement.log").read_text()
