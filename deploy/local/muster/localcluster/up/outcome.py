"""Waits until every example is as it should be, and says what came of each."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import msgspec

from muster.cli.format import phase_word
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.coordinator.v1.coordinator_pb2 import Phase
from muster.kube.session import ApiStatusError, KubeSession
from muster.localcluster.up.examples import Example, Expected
from muster.localcluster.up.state import Picture
from muster.rpc.channel import open_channel

_CALL_SECONDS = 10.0
_LOOK_SECONDS = 1.0  # tries are not announced by Watch
_STILL_SECONDS = 30.0  # nothing has changed for so long: nothing will


@dataclass(frozen=True)
class ExampleOutcome:
    """What came of one example. `seconds`: from its first pod to its last bind; None while it is not bound."""

    name: str
    namespace: str
    pods: int
    bound: int
    phase: str
    expected: str
    as_expected: bool
    seconds: float | None
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What came of all of them."""

    gangs: tuple[ExampleOutcome, ...]
    seconds: float
    """From the first manifest applied until all was settled or given up."""

    @property
    def as_expected(self) -> bool:
        return all(gang.as_expected for gang in self.gangs)

    def as_json(self) -> dict[str, Any]:
        return {"gangs": [vars(gang) for gang in self.gangs], "seconds": self.seconds, "as_expected": self.as_expected}


async def settle(
    session: KubeSession,
    coordinator: str,
    picture: Picture,
    examples: Sequence[Example],
    *,
    began: float,
    timeout_seconds: float,
) -> Outcome:
    """Wait until all examples are as expected, nothing changes any more, or the time (counted from `began`) is up."""
    channel = open_channel(coordinator, PLAIN_TEXT)
    stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    try:
        while time.monotonic() < began + timeout_seconds:
            version = picture.version
            if await _settled(stub, picture, examples):
                break
            until = min(picture.gangs_changed_at + _STILL_SECONDS, began + timeout_seconds)
            if until <= time.monotonic():
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(picture.newer_than(version), min(_LOOK_SECONDS, until - time.monotonic()))
    finally:
        await channel.close()
    bound = await _bound_pods(session)
    seconds = round(time.monotonic() - began, 3)
    return Outcome(tuple(_outcome(example, picture, bound) for example in examples), seconds)


async def _settled(
    stub: "coordinator_pb2_grpc.CoordinatorServiceAsyncStub", picture: Picture, examples: Sequence[Example]
) -> bool:
    """All are as expected, and those that wait in the queue have been tried."""
    if not all(example.reached(picture.gangs.get(example.id)) for example in examples):
        return False
    for example in examples:
        if picture.gangs[example.id].phase == Phase.PHASE_QUEUED:
            request = coordinator_pb2.ExplainRequest(gang=example.id)
            try:
                answer = await stub.Explain(request, timeout=_CALL_SECONDS)
            except grpc.aio.AioRpcError:
                return False
            if not answer.attempts:
                return False
    return True


async def _bound_pods(session: KubeSession) -> set[tuple[str, str]]:
    """The API server's word on which pods have a node."""
    response = await session.request("GET", "/api/v1/pods", timeout_seconds=_CALL_SECONDS)
    if response.status != 200:
        raise ApiStatusError.from_response(response)
    pods = msgspec.json.decode(response.body)["items"]
    return {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods if pod["spec"].get("nodeName")}


def _outcome(example: Example, picture: Picture, bound: set[tuple[str, str]]) -> ExampleOutcome:
    gang = picture.gangs.get(example.id)
    pods = example.wanted(gang) if gang else len(example.pods)
    really_bound = len(example.pods & bound) if example.pods or gang is None else gang.bound
    wanted = pods if example.expected is Expected.BOUND else 0
    return ExampleOutcome(
        name=example.name,
        namespace=example.namespace,
        pods=pods,
        bound=really_bound,
        phase=phase_word(gang.phase) if gang else "unknown",
        expected=example.expected.value,
        as_expected=example.reached(gang) and really_bound == wanted,
        seconds=round(gang.start_seconds, 3) if gang and gang.HasField("start_seconds") else None,
        reason=gang.reason if gang else "the coordinator does not know it",
    )
