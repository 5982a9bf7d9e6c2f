"""The program `muster` with a fake coordinator: output and exit codes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from muster.cli.endpoints import Endpoints
from muster.cli.trace_file import Span
from muster.clusterstate.v1 import clusterstate_pb2 as state
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1 import coordinator_pb2_grpc
from muster.localcluster.trace_receiver import TraceWriter
from muster.placement.v1 import placement_pb2

RESNET = pb.Gang(
    id="koordinator/ml/resnet",
    dialect="koordinator",
    namespace="ml",
    name="resnet",
    phase=pb.PHASE_QUEUED,
    minimum=8,
    members=8,
    reason="6 of 8 members fit; short of 2 cpu for the next",
    schedule_cycle=3,
    trace_id="a" * 32,
)
BERT = pb.Gang(
    id="coscheduling/ml/bert",
    dialect="coscheduling",
    namespace="ml",
    name="bert",
    phase=pb.PHASE_SATISFIED,
    minimum=4,
    members=4,
    bound=4,
    start_seconds=0.0123,
    schedule_cycle=1,
)


class Coordinator(coordinator_pb2_grpc.CoordinatorServiceServicer):
    """Answers as a test configures it."""

    def __init__(self) -> None:
        self.gangs = [RESNET, BERT]
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self.explanation = pb.ExplainResponse(gang=RESNET)

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListResponse:  # noqa: N802
        await self._refuse(context)
        return pb.ListResponse(gangs=[g for g in self.gangs if request.namespace in ("", g.namespace)])

    async def Leader(self, request: pb.LeaderRequest, context: Any) -> pb.LeaderResponse:  # noqa: N802
        return pb.LeaderResponse()

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:  # noqa: N802
        await self._refuse(context)
        if not request.gang.endswith("resnet"):
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such gang")
        return self.explanation

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        yield pb.WatchResponse(gangs=self.gangs, synced=True)
        yield pb.WatchResponse(removed=[RESNET.id])

    async def Records(  # noqa: N802
        self, request: pb.RecordsRequest, context: Any
    ) -> AsyncIterator[pb.RecordsResponse]:
        yield pb.RecordsResponse()

    async def _refuse(self, context: Any) -> None:
        if self.refusal:
            await context.abort(*self.refusal)


@dataclass
class Ran:
    """Outcome of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
async def coordinator() -> AsyncIterator[tuple[Coordinator, str]]:
    servicer, server = Coordinator(), grpc.aio.server()
    coordinator_pb2_grpc.add_CoordinatorServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(None)


async def muster(directory: Path, *arguments: str, **environment: str) -> Ran:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", *arguments),
        cwd=directory,
        env={**clean, "COLUMNS": "200", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return Ran(process.returncode or 0, out.decode(), err.decode())


async def test_gangs_are_listed_with_their_reasons(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    ran = await muster(tmp_path, "gangs", "--coordinator", coordinator[1])
    assert ran.code == 0
    assert "resnet" in ran.out
    assert "queued" in ran.out
    assert "short of 2 cpu" in ran.out
    assert "12.3 ms" in ran.out


async def test_gangs_as_json_have_phases_as_words(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    ran = await muster(tmp_path, "gangs", "-o", "json", MUSTER_COORDINATOR=coordinator[1])
    gangs = json.loads(ran.out)["gangs"]
    assert [(gang["name"], gang["phase"], gang["start_seconds"]) for gang in gangs] == [
        ("resnet", "queued", None),
        ("bert", "satisfied", 0.0123),
    ]


async def test_gangs_of_one_namespace(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    ran = await muster(tmp_path, "gangs", "-n", "other", "--coordinator", coordinator[1])
    assert (ran.code, ran.out) == (0, "")
    assert "no gangs in namespace other" in ran.err


async def test_watch_prints_a_line_per_change(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    ran = await muster(tmp_path, "gangs", "--watch", "--coordinator", coordinator[1])
    assert ran.out.splitlines() == [
        "koordinator/ml/resnet queued, 0/8 bound: 6 of 8 members fit; short of 2 cpu for the next",
        "coscheduling/ml/bert satisfied, 4/4 bound",
        "koordinator/ml/resnet removed",
    ]


async def test_explain_shows_shortage_queue_and_remedies(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    coordinator[0].explanation = pb.ExplainResponse(
        gang=RESNET,
        group=[RESNET.id, "koordinator/etl/feeder"],
        queue_position=2,
        ahead=["koordinator/ml/gpt"],
        attempts=5,
        explanation=placement_pb2.Explanation(
            summary="6 of 8 members fit",
            fit=6,
            needed=8,
            filtered_nodes=[placement_pb2.FilteredNodes(reason="Insufficient cpu", nodes=17)],
            short_by=[state.ResourceAmount(name="cpu", amount=1500), state.ResourceAmount(name="memory", amount=2**31)],
        ),
        problems=[state.Problem(severity=state.Problem.SEVERITY_WARNING, message='mode is "Strct"; Strict is used')],
        would_help=["1.5 cpu on one more node"],
        members=[pb.Member(pod=f"ml/resnet-{i}", state="pending") for i in range(12)],
    )
    ran = await muster(tmp_path, "explain", "resnet", "--coordinator", coordinator[1])
    assert ran.code == 0
    for words in (
        "ml/resnet is queued",
        "starts together with koordinator/etl/feeder",
        "position 2",
        "5 attempts",
        "6 of 8 members fit at best",
        "short by 1.5 cpu, 2Gi memory",
        "17 nodes  Insufficient cpu",
        'mode is "Strct"',
        "koordinator/ml/gpt",
        "1.5 cpu on one more node",
        "12 pending",
        "and 2 more",
    ):
        assert words in ran.out, words


async def test_an_unknown_gang_suggests_similar_names(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    ran = await muster(tmp_path, "explain", "resnt", "--coordinator", coordinator[1])
    assert ran.code == 1
    assert "no gang is named 'resnt'" in ran.err
    assert "did you mean koordinator/ml/resnet?" in ran.err


async def test_a_standby_replica_names_the_leader(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    coordinator[0].refusal = (grpc.StatusCode.UNAVAILABLE, "this replica does not lead; muster-1 leads")
    ran = await muster(tmp_path, "gangs", "--coordinator", coordinator[1])
    assert ran.code == 1
    assert "muster-1 leads" in ran.err


async def test_an_unreachable_coordinator_is_an_error_with_a_hint(tmp_path: Path) -> None:
    ran = await muster(tmp_path, "gangs", "--coordinator", "127.0.0.1:1")
    assert ran.code == 1
    assert "no coordinator answers at 127.0.0.1:1" in ran.err
    assert "muster up" in ran.err


async def test_neither_local_cluster_nor_address_is_a_usage_error(tmp_path: Path) -> None:
    ran = await muster(tmp_path, "gangs")
    assert ran.code == 2
    assert "--coordinator" in ran.err


async def test_the_local_cluster_is_found_from_a_subdirectory(
    tmp_path: Path, coordinator: tuple[Coordinator, str]
) -> None:
    write_endpoints(tmp_path, coordinator[1])
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    ran = await muster(below, "gangs")
    assert "resnet" in ran.out


async def test_a_trace_is_printed_as_a_tree(tmp_path: Path, coordinator: tuple[Coordinator, str]) -> None:
    write_endpoints(tmp_path, coordinator[1])
    ran = await muster(tmp_path, "trace", "resnet")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert "koordinator/ml/resnet" in lines[0]
    assert "25.0 ms" in lines[0]
    assert "2 services" in lines[0]
    assert lines[2].startswith("gang")
    assert lines[3].startswith("└─ Solve")
    assert "placement" in lines[3]
    assert "+5.00 ms" in lines[3]


async def test_a_deleted_gang_is_found_in_the_trace_file(tmp_path: Path) -> None:
    write_endpoints(tmp_path, "127.0.0.1:1")
    ran = await muster(tmp_path, "trace", "ml/resnet", "-o", "json")
    assert [span["name"] for span in json.loads(ran.out)["spans"]] == ["gang", "Solve"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "coordinator", "--listen", "here"), "--listen or MUSTER_COORDINATOR_LISTEN: an address is HOST:PORT"),
        (("run", "coordinator", "--lease-seconds", "0"), "--lease-seconds or MUSTER_COORDINATOR_LEASE_SECONDS"),
        (("run", "nonsense"), "No such command 'nonsense'"),
        (("up", "--nodes", "0"), "--nodes"),
        (("up", "--examples", "nowhere.yaml"), "there is no file or directory nowhere.yaml"),
        (("conformance", "placement", "--listen", "here"), "--listen 'here' is no address: an address is HOST:PORT"),
    ],
)
async def test_usage_errors_exit_with_2(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ran = await muster(tmp_path, *arguments)
    assert ran.code == 2
    assert words in ran.err


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (("conformance", "placement"), "0.0.0.0:7001"),
        (("conformance", "placement"), "[::]:7001"),
        (("conformance", "replay", "C15.json"), "192.0.2.1:7001"),
        (("replay", "trace.jsonl", "--nodes", "2"), "node.example:7001"),
        (("up", "--placement", "127.0.0.1:7003"), "0.0.0.0:7001"),
    ],
)
async def test_commands_do_not_serve_the_network_without_tls(
    tmp_path: Path, arguments: tuple[str, ...], address: str
) -> None:
    ran = await muster(tmp_path, *arguments, "--listen", address)
    assert ran.code == 2
    assert f"error: --listen {address!r} can be reached from the network" in ran.err
    assert "listen on 127.0.0.1" in ran.err


async def test_help_lists_every_setting_with_its_variable(tmp_path: Path) -> None:
    ran = await muster(tmp_path, "run", "coordinator", "--help")
    assert ran.code == 0
    for words in ("--lease-seconds", "MUSTER_COORDINATOR_LEASE_SECONDS", "Default: 3.", "--tls-ca-file"):
        assert words in ran.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("cluster-state", "--kubeconfig", "nowhere"), "error: the kubeconfig 'nowhere' does not exist"),
        (("binding", "--kubeconfig", "empty"), "error: the kubeconfig 'empty' cannot be read"),
        (("placement", "--insecure", "--listen", "192.0.2.1:1"), "error: cannot listen on '192.0.2.1:1'"),
        (("coordinator", "--etcd", "http://a:1"), "error: etcd endpoints must be HOST:PORT"),
        (("coordinator", "--etcd-password-file", "nowhere"), "error: the password of etcd's user cannot be read"),
        (
            ("placement", "--tls-certificate-file", "c", "--tls-key-file", "k", "--tls-ca-file", "a"),
            "error: cannot read c: No such file or directory",
        ),
    ],
)
async def test_a_service_that_cannot_start_prints_one_line(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    service, *flags = arguments
    ran = await muster(tmp_path, "run", service, "--listen", "127.0.0.1:0", *flags)
    assert ran.code == 1
    assert complaint in ran.err
    assert "Traceback" not in ran.err


async def test_version(tmp_path: Path) -> None:
    assert (await muster(tmp_path, "version")).out.strip() == "0.1.0"
    assert json.loads((await muster(tmp_path, "version", "--output", "json")).out) == {"version": "0.1.0"}


def write_endpoints(directory: Path, coordinator: str) -> None:
    """Write the state directory of a local cluster, with a trace of resnet."""
    state_directory = directory / ".muster"
    traces = state_directory / "traces.jsonl"
    ms = 1_000_000
    gang = {"muster.gang": RESNET.id}
    root = Span(RESNET.trace_id, "1", "gang", "coordinator", 0, 25 * ms, attributes=gang)
    TraceWriter(traces).add([root, Span(RESNET.trace_id, "2", "Solve", "placement", 5 * ms, 9 * ms, parent_id="1")])
    Endpoints(
        pid=os.getpid(),
        kubeconfig="",
        etcd="",
        cluster_state="",
        placement="",
        binding="",
        coordinator=coordinator,
        traces=str(traces),
    ).write(state_directory)
