"""A console with the services that it follows: gRPC servers that say what a test gives them."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import grpc
import msgspec

from builders.clusterstate.stream import ClusterStream
from builders.clusterstate.stream import serving as serving_cluster
from builders.wait import eventually
from muster.config.settings import PLAIN_TEXT
from muster.console.service import run
from muster.console.settings import Settings
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from muster.forecast.v1 import forecast_pb2 as forecast_pb
from muster.forecast.v1 import forecast_pb2_grpc as forecast_grpc
from muster.gangs.facts import Batch, NodeFacts, PodClass, PodFacts, PodPhase, TopologyTree, TreeLevel
from muster.localcluster.ports import free_port
from muster.rpc.errors import RpcError
from muster.rpc.server import RpcServer

FULL_NAME = "muster.coordinator.v1.CoordinatorService"
FORECAST = "muster.forecast.v1.ForecastService"
JSON = dict[str, Any]


class Coordinator(pb_grpc.CoordinatorServiceServicer):
    """A coordinator with the gangs and records of the test."""

    def __init__(self) -> None:
        self.gangs: dict[str, pb.Gang] = {}
        self.explanations: dict[str, pb.ExplainResponse] = {}
        self.records: list[JSON] = []
        self.explained = 0
        self._watches: list[asyncio.Queue[pb.WatchResponse]] = []

    def put(self, *gangs: pb.Gang) -> None:
        """Add or change gangs."""
        self.gangs.update((each.id, each) for each in gangs)
        for watch in self._watches:
            watch.put_nowait(pb.WatchResponse(gangs=gangs))

    def remove(self, id_: str) -> None:
        """Remove a gang."""
        del self.gangs[id_]
        for watch in self._watches:
            watch.put_nowait(pb.WatchResponse(removed=[id_]))

    async def Leader(self, request: pb.LeaderRequest, context: Any) -> pb.LeaderResponse:  # noqa: N802
        return pb.LeaderResponse(identity="coordinator-0", epoch=7)

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListResponse:  # noqa: N802
        return pb.ListResponse(gangs=list(self.gangs.values()))

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:  # noqa: N802
        self.explained += 1
        gang = self.gangs.get(request.gang)
        if gang is None:
            raise RpcError(grpc.StatusCode.NOT_FOUND, f"no gang {request.gang}")
        response = pb.ExplainResponse()
        response.CopyFrom(self.explanations.get(request.gang, response))
        response.gang.CopyFrom(gang)
        return response

    async def Records(self, request: pb.RecordsRequest, context: Any) -> AsyncIterator[pb.RecordsResponse]:  # noqa: N802
        yield pb.RecordsResponse(records=[msgspec.json.encode(record) for record in self.records])

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        watch: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()
        self._watches.append(watch)
        try:
            yield pb.WatchResponse(gangs=list(self.gangs.values()), synced=True)
            while True:
                yield await watch.get()
        finally:
            self._watches.remove(watch)


class ForecastService(forecast_grpc.ForecastServiceServicer):
    """A service forecast with the answers of the test."""

    def __init__(self) -> None:
        self.answer = forecast_pb.WhatIfResponse(verdict=forecast_pb.VERDICT_NEVER)
        self.expected = forecast_pb.StartsResponse()
        self.asked: list[forecast_pb.WhatIfRequest] = []
        self.answers = asyncio.Event()
        """What-if is answered once it is set, as it is at first."""
        self.answers.set()

    async def WhatIf(  # noqa: N802
        self, request: forecast_pb.WhatIfRequest, context: Any
    ) -> forecast_pb.WhatIfResponse:
        self.asked.append(request)
        await self.answers.wait()
        return self.answer

    async def Starts(  # noqa: N802
        self, request: forecast_pb.StartsRequest, context: Any
    ) -> forecast_pb.StartsResponse:
        return self.expected


def gang(id_: str, phase: pb.Phase.ValueType = pb.PHASE_QUEUED, **fields: Any) -> pb.Gang:
    """A gang of four."""
    dialect, namespace, name = id_.split("/", 2)
    described = {"minimum": 4, "members": 4, "created_seconds": 1_700_000_000, **fields}
    return pb.Gang(id=id_, dialect=dialect, namespace=namespace, name=name, phase=phase, **described)


@dataclass(frozen=True)
class Services:
    """The services that a console follows."""

    cluster: ClusterStream
    coordinator: Coordinator
    cluster_state_address: str
    coordinator_address: str
    forecast: ForecastService
    forecast_address: str

    def settings(self, **others: Any) -> Settings:
        """Settings of a console that follows them."""
        listen = others.pop("listen", f"127.0.0.1:{free_port()}")
        return Settings(
            listen=listen, cluster_state=self.cluster_state_address, coordinator=self.coordinator_address, **others
        )


@contextlib.asynccontextmanager
async def services() -> AsyncIterator[Services]:
    """Start them, with an empty cluster."""
    stream, coordinator = ClusterStream(), Coordinator()
    stream.opens_with(Batch(), {})
    forecast = ForecastService()
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "coordinator")
    server.add(pb_grpc.add_CoordinatorServiceServicer_to_server, coordinator, FULL_NAME)
    server.add(forecast_grpc.add_ForecastServiceServicer_to_server, forecast, FORECAST)
    port = await server.start()
    server.set_ready(True)
    try:
        async with serving_cluster(stream) as address:
            here = f"127.0.0.1:{port}"
            yield Services(stream, coordinator, address, here, forecast, here)
    finally:
        await server.stop(grace_seconds=0)


@contextlib.asynccontextmanager
async def console(settings: Settings) -> AsyncIterator[str]:
    """A console; yields its URL once it is ready."""
    url = f"{'https' if settings.https_files else 'http'}://{settings.listen}"
    task = asyncio.create_task(run(settings))
    try:
        async with aiohttp.ClientSession() as session:

            async def ready() -> bool:
                if task.done():
                    task.result()
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{url}/ready", ssl=False) as answer:
                        return answer.status == 200
                return False

            await eventually(ready, "the console is ready")
        yield url
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Reader:
    """Reads events as a browser does."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, JSON]:
        """Name and content of the next event."""
        name = ""
        async with asyncio.timeout(60):
            while line := (await self.response.content.readline()).decode():
                if line.startswith("event: "):
                    name = line[7:].rstrip("\n")
                elif line.startswith("data: "):
                    return name, msgspec.json.decode(line[6:])
        raise AssertionError("the stream has ended")

    async def until(self, name: str) -> JSON:
        """The content of the next event with this name."""
        while True:
            found, content = await self.next()
            if found == name:
                return content


@contextlib.asynccontextmanager
async def events(url: str, parameters: str, token: str = "") -> AsyncIterator[Reader]:
    """Open a stream of events."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(read_bufsize=2**24) as session,
        session.get(f"{url}/api/events?{parameters}", headers=headers, ssl=False) as response,
    ):
        assert response.status == 200, await response.text()
        yield Reader(response)


RACKS = TopologyTree("racks", (TreeLevel("zone", "zone"), TreeLevel("rack", "rack"), TreeLevel("node")), default=True)
SMALL = PodClass("small", requests=(("cpu", 1000), ("memory", 1 << 30), ("pods", 1)))


def node(number: int, racks: int = 4) -> NodeFacts:
    """A node of 8 cpu, in one of the racks; two racks are in a zone."""
    rack = number % racks
    return NodeFacts(
        f"node-{number:04}",
        allocatable=(("cpu", 8000), ("memory", 32 << 30), ("pods", 110)),
        labels={"rack": f"rack-{rack}", "zone": f"zone-{rack // 2}"},
    )


_uids = itertools.count()


def pod(name: str, gang_id: str, on: str = "", **fields: Any) -> PodFacts:
    """A pod of one cpu."""
    return PodFacts(
        uid=f"uid-{next(_uids)}",
        namespace=gang_id.split("/")[1],
        name=name,
        class_id=SMALL.id,
        node=on,
        gang=gang_id,
        phase=PodPhase.RUNNING if on else PodPhase.PENDING,
        started_seconds=1_700_000_100 if on else 0,
        **fields,
    )


def cluster(nodes: int, pods: tuple[PodFacts, ...] = (), **fields: Any) -> Batch:
    """A cluster of equal nodes with these pods."""
    return Batch(
        pod_classes=(SMALL,), nodes=tuple(map(node, range(nodes))), pods=pods, trees=(RACKS,), through={}, **fields
    )
