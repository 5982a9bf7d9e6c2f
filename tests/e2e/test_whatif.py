"""`muster whatif` and `muster queue --start` on a running cluster, alone and by the service forecast."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.telemetry.metrics import Figures
from builders.wait import eventually
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.v1 import forecast_pb2_grpc as pb_grpc
from muster.localcluster.ports import free_port
from muster.rpc.channel import open_channel

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 300
LIMIT = ("--limit", str(SECONDS))
"""Answers are the same however busy the machine is."""
NOW, LATER, NEVER = 0, 3, 4
MUSTER = (sys.executable, "-m", "muster.cli")


async def muster(cluster: Cluster, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run the command line as a user does; returns its output."""
    addresses = cluster.stack.addresses
    process = await asyncio.create_subprocess_exec(
        *(*MUSTER, *arguments),
        env={
            **os.environ,
            "MUSTER_COORDINATOR": addresses["coordinator"],
            "MUSTER_CLUSTER_STATE": addresses["cluster-state"],
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode in codes, (process.returncode, output.decode(), errors.decode())
    return output.decode()


def written(workload: Workload, directory: Path) -> str:
    """A file with the manifests of a gang."""
    file = directory / f"{workload.name}.json"
    definition = workload.definition()
    items = [*([definition] if definition is not None else []), *workload.pods()]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(file)


@asynccontextmanager
async def serving(cluster: Cluster, *options: str) -> AsyncIterator[str]:
    """The service forecast for the cluster; yields its address."""
    address, stack = f"127.0.0.1:{free_port()}", cluster.stack
    process = await asyncio.create_subprocess_exec(
        *(*MUSTER, "run", "forecast", "--listen", address, "--log-level", "error"),
        *("--cluster-state", stack.addresses["cluster-state"], "--coordinator", stack.addresses["coordinator"]),
        *("--starts-for-seconds", "0", "--max-seconds", str(SECONDS), *options),
    )
    try:
        async with open_channel(address) as channel:
            stub = pb_grpc.ForecastServiceStub(channel)
            await stub.Starts(pb.StartsRequest(), timeout=SECONDS, wait_for_ready=True)
        yield address
    finally:
        process.terminate()
        await process.wait()


@pytest_asyncio.fixture(loop_scope="session")
async def forecast(cluster: Cluster) -> AsyncIterator[str]:
    """Address of the service forecast for the cluster."""
    async with serving(cluster) as address:
        yield address


async def test_a_gang_starts_where_it_was_said(world: World, tmp_path: Path) -> None:
    await world.until_published(await world.nodes(2, 4, 4))
    train = world.here(gang("train").of(6))
    said = json.loads(await muster(world.cluster, "whatif", "-f", written(train, tmp_path), *LIMIT, "-o", "json"))

    assert said["verdict"] == "now"
    assert said["exact"]
    await world.create(train)
    await world.bound(train)
    names = {pod["metadata"]["name"] for pod in train.pods()}
    nodes = {
        f"{namespace}/{name}": pod["spec"]["nodeName"]
        for (namespace, name), pod in world.cluster.pods.items()
        if name in names
    }
    assert nodes == {pod: place["node"] for pod, place in said["pods"].items()}


async def test_the_service_says_the_same_as_the_command(world: World, forecast: str, tmp_path: Path) -> None:
    await world.nodes(4, 4)
    running = world.here(gang("running").of(6).running_for(3600))
    await world.create(running)
    await world.bound(running)
    file = written(world.here(gang("train").of(6)), tmp_path)

    alone = json.loads(await muster(world.cluster, "whatif", "-f", file, *LIMIT, "-o", "json", codes=(LATER,)))
    by_service = json.loads(
        await muster(world.cluster, "whatif", "-f", file, *LIMIT, "-o", "json", "--forecast", forecast, codes=(LATER,))
    )

    def stated(answer: dict[str, Any]) -> dict[str, Any]:
        return {key: answer[key] for key in ("verdict", "pods", "would_start_now_if", "after_the_ends_of")}

    assert stated(alone) == stated(by_service)
    assert alone["after_seconds"] == pytest.approx(by_service["after_seconds"], abs=SECONDS)


async def test_a_snapshot_has_what_the_leader_knows(world: World, tmp_path: Path) -> None:
    await world.nodes(4)
    running, waiting = world.here(gang("running").of(3)), gang("waiting").of(4)
    await world.create(running)
    await world.bound(running)
    await world.create(waiting)
    await world.waits(waiting, "1 of 4 members fit")
    file, snapshot = written(world.here(gang("small").of(1)), tmp_path), str(tmp_path / "cluster.zip")

    await muster(world.cluster, "snapshot", snapshot)
    said = json.loads(await muster(world.cluster, "whatif", "-f", file, "--snapshot", snapshot, *LIMIT, "-o", "json"))

    assert said["verdict"] == "now"


async def test_the_queue_says_when_gangs_are_expected_to_start(world: World, forecast: str) -> None:
    await world.nodes(4)
    running = world.here(gang("running").of(3).running_for(3600))
    later, never = world.here(gang("later").of(4)), world.here(gang("never").of(5))
    await world.create(running)
    await world.bound(running)
    await world.create(later, never)
    await world.waits(later, "1 of 4 members fit")

    async def expected(*options: str) -> dict[str, Any]:
        printed = json.loads(await muster(world.cluster, "queue", "--start", *LIMIT, "-o", "json", *options))
        starts = {each["name"]: each["expected_start"] for each in printed["gangs"] if "expected_start" in each}
        return {"assumptions": printed["assumptions"], **starts}

    for options in ((), ("--forecast", forecast)):
        starts = await eventually(lambda options=options: expected(*options), "starts are known")  # type: ignore[misc]
        assert starts["later"]["verdict"] == "later"
        assert starts["never"]["verdict"] == "never"
        assert starts["assumptions"] == {"declared": 3, "learnt": 0, "unknown": 0}
    explained = await muster(world.cluster, "explain", f"{later.namespace}/later", "--forecast", forecast)
    assert "expected about" in explained
    assert "of 3 running pods 3 declare how long they run" in explained


async def test_what_explain_says_of_a_stuck_gang_was_played_and_lets_it_start(world: World, forecast: str) -> None:
    await world.nodes(4)
    stuck = world.here(gang("stuck").of(6))
    await world.create(stuck)
    await world.waits(stuck, "4 of 6 members fit")

    explain = "explain", f"{stuck.namespace}/stuck", *LIMIT
    (node,) = (name for name in world.cluster.nodes if name)

    async def played(*options: str) -> list[str] | None:
        printed = json.loads(await muster(world.cluster, *explain, "-o", "json", *options))
        changes: list[str] | None = printed["would_start_now_if"]
        return changes

    said = [f"there were one more node like {node}", "it had 4 members"]
    by_service = "--forecast", forecast
    assert await eventually(lambda: played(*by_service), "changes were played") == said
    assert await played() == said, "the command plays the same itself"
    text = await muster(world.cluster, *explain)
    assert text.index("What it lacks") < text.index("It would start now if")
    assert await played("--limit", "0") is None, "nothing is to be played"
    await world.nodes(4)
    await world.bound(stuck)
    assert (await played(*by_service), await played()) == (None, None), "it runs"


async def test_questions_are_bounded_in_size_and_number(world: World) -> None:
    question = pb.WhatIfRequest()
    question.gangs.pods.add(uid="a", namespace="default", name="a", class_id="small")
    question.gangs.pod_classes.add(id="small")
    large = pb.WhatIfRequest()
    large.CopyFrom(question)
    large.gangs.pods.add(uid="b", namespace="default", name="b", class_id="small")
    absent = pb.WhatIfRequest(gangs=question.gangs, without_nodes=["nowhere"])
    metrics = f"127.0.0.1:{free_port()}"

    async with (
        serving(world.cluster, "--max-waiting", "0", "--max-pods", "1", "--metrics-listen", metrics) as address,
        open_channel(address) as channel,
    ):
        stub = pb_grpc.ForecastServiceStub(channel)

        async def refusal(request: pb.WhatIfRequest) -> tuple[grpc.StatusCode, str]:
            try:
                await stub.WhatIf(request, timeout=SECONDS)
            except grpc.aio.AioRpcError as error:
                return error.code(), error.details() or ""
            return grpc.StatusCode.OK, ""

        assert await refusal(pb.WhatIfRequest()) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "there are no pods in the question",
        )
        assert await refusal(large) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "the question has 2 pods: at most 1 are played",
        )
        assert await refusal(absent) == (grpc.StatusCode.INVALID_ARGUMENT, 'there is no node "nowhere"')
        codes = [code for code, _ in await asyncio.gather(*(refusal(question) for _ in range(4)))]
        assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert await refusal(question) == (grpc.StatusCode.OK, "")
        await stub.Starts(pb.StartsRequest(), timeout=SECONDS)
        exposed = await Figures.at(metrics)
        answered, busy = codes.count(grpc.StatusCode.OK) + 1, codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED)
        refused = {"invalid": 2, "too_many_pods": 1, "too_many_waiting": busy, "unavailable": 0}
        for reason, count in refused.items():
            assert exposed("muster_forecast_refusals_total", reason=reason) == count, reason
        assert exposed("muster_forecast_requests_total", method="WhatIf", outcome="complete") == answered
        assert exposed("muster_forecast_requests_total", method="WhatIf", outcome="refused") == 3 + busy
        assert exposed("muster_forecast_answer_seconds_count", method="Starts") == 2  # one was for readiness
        assert ("muster_forecast_starts_age_seconds", frozenset()) in exposed.samples
        assert ("muster_forecast_stream_age_seconds", frozenset()) in exposed.samples


async def test_without_a_leader_the_service_says_so(world: World, forecast: str, tmp_path: Path) -> None:
    file = written(world.here(gang("train").of(1)), tmp_path)
    for replica in world.cluster.stack.replicas_of("coordinator"):
        await world.cluster.stack.children[replica].kill()

    failed = await muster(world.cluster, "whatif", "-f", file, "--forecast", forecast, codes=(1,))

    assert failed == ""
