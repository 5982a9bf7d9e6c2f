"""First-fit configured as placement: everything else works as before."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.world import World
from builders.gangs.manifests import gang, plain

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
    """All processes, with first-fit as placement."""
    async with running_cluster(tmp_path_factory.mktemp("first-fit"), placement="first-fit") as cluster:
        yield cluster


async def test_gangs_start_whole_or_wait_for_capacity(world: World) -> None:
    await world.nodes(4, 4)
    a, b = gang("a").of(6), gang("b").of(4)
    await world.create(a)
    await world.bound(a)
    await world.create(b)
    await world.waits(b, "2 of 4 members fit first-fit")
    await world.delete(a)
    await world.bound(b)


async def test_unsupported_features_are_reported_to_the_user(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(2).marked({"muster.dev/topology": "node: hard pack"})
    await world.create(a)
    await world.waits(
        a, "first-fit does not support hard topology constraints (FEATURE_CONSTRAINTS); use another placement"
    )
    await world.unschedulable(a, "first-fit does not support hard topology constraints")
    single = plain("single")
    await world.create(single)
    await world.bound(single)


async def test_first_fit_ignores_a_soft_constraint(world: World) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(6).marked({"muster.dev/topology": "node: pack"})
    await world.create(a)
    await world.bound(a)


async def test_first_fit_preempts_nothing(world: World) -> None:
    await world.nodes(4)
    low, high = gang("low").of(4).with_priority(0), gang("high").of(2).with_priority(10)
    await world.create(low)
    await world.bound(low)
    await world.create(high)
    await world.waits(high, "0 of 2 members fit first-fit")
    await world.delete(low)
    await world.bound(high)


async def test_up_runs_first_fit_on_request(tmp_path: Path) -> None:
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
