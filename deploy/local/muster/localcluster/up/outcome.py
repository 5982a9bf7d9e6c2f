"""Waits until every example gang is as expected, and reports the outcome of each."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import msgspec

from muster.cli.format import phase_word
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase
from muster.kube.session import ApiStatusError, KubeSession
from muster.localcluster.up.cluster_view import ClusterView
from muster.localcluster.up.examples import Example, Expected
from muster.rpc.channel import open_channel

_CALL_SECONDS = 10.0
_POLL_SECONDS = 1.0  # Watch does not announce attempts
_NO_CHANGE_SECONDS = 30.0  # after that time without a change, none is expected


@dataclass(frozen=True)
class ExampleOutcome:
    """Outcome of one example. `seconds`: from its first pod to its last bind; None if it is not bound."""

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
    """Outcome of all examples."""

    gangs: tuple[ExampleOutcome, ...]
    seconds: float
    """From the first manifest until every gang was as expected, or the wait ended."""

    @property
    def as_expected(self) -> bool:
        return all(gang.as_expected for gang in self.gangs)

    def as_json(self) -> dict[str, Any]:
        return {"gangs": [vars(gang) for gang in self.gangs], "seconds": self.seconds, "as_expected": self.as_expected}


async def wait_until_expected(
    session: KubeSession,
    coordinator: str,
    view: ClusterView,
    examples: Sequence[Example],
    *,
    started: float,
    timeout_seconds: float,
) -> Outcome:
    """Wait until all examples are as expected, nothing has changed for 30 s, or `timeout_seconds` after `started`."""
    channel = open_channel(coordinator, PLAIN_TEXT)
    stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    try:
        while True:
            # Gangs that wait are tried again from time to time: what was found to be as expected is the outcome.
            gangs, version = dict(view.gangs), view.version
            if time.monotonic() >= started + timeout_seconds or await _as_expected(stub, gangs, examples):
                break
            until = min(view.gangs_changed_at + _NO_CHANGE_SECONDS, started + timeout_seconds)
            if until <= time.monotonic():
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(view.newer_than(version), min(_POLL_SECONDS, until - time.monotonic()))
    finally:
        await channel.close()
    bound = await _bound_pods(session)
    seconds = round(time.monotonic() - started, 3)
    return Outcome(tuple(_outcome(example, gangs.get(example.id), bound) for example in examples), seconds)


async def _as_expected(
    stub: "coordinator_pb2_grpc.CoordinatorServiceAsyncStub", gangs: Mapping[str, Gang], examples: Sequence[Example]
) -> bool:
    """All examples are as expected, and every queued one has been tried."""
    if not all(example.reached(gangs.get(example.id)) for example in examples):
        return False
    for example in examples:
        if gangs[example.id].phase == Phase.PHASE_QUEUED:
            request = coordinator_pb2.ExplainRequest(gang=example.id)
            try:
                answer = await stub.Explain(request, timeout=_CALL_SECONDS)
            except grpc.aio.AioRpcError:
                return False
            if not answer.attempts:
                return False
    return True


async def _bound_pods(session: KubeSession) -> set[tuple[str, str]]:
    """Namespace and name of all pods with a node, from the API server."""
    response = await session.request("GET", "/api/v1/pods", timeout_seconds=_CALL_SECONDS)
    if response.status != 200:
        raise ApiStatusError.from_response(response)
    pods = msgspec.json.decode(response.body)["items"]
    return {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in pods if pod["spec"].get("nodeName")}


def _outcome(example: Example, gang: Gang | None, bound: set[tuple[str, str]]) -> ExampleOutcome:
    pods = example.expected_bound(gang) if gang else len(example.pods)
    really_bound = len(example.pods & bound) if example.pods or gang is None else gang.bound
    expected_bound = pods if example.expected is Expected.BOUND else 0
    return ExampleOutcome(
        name=example.name,
        namespace=example.namespace,
        pods=pods,
        bound=really_bound,
        phase=phase_word(gang.phase) if gang else "unknown",
        expected=example.expected.value,
        as_expected=example.reached(gang) and really_bound == expected_bound,
        seconds=round(gang.start_seconds, 3) if gang and gang.HasField("start_seconds") else None,
        reason=gang.reason if gang else "the coordinator does not know the gang",
    )
