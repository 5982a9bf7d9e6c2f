"""The conformance suite of placement: what is run against an implementation, in which order, and what came of it."""

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from typing import Final

from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2_grpc as state_grpc
from muster.config.settings import PLAIN_TEXT
from muster.conformance.case import FEATURES, Case, Failed, Feature, Group, Unsafe
from muster.conformance.cases import CASES
from muster.conformance.stage import FULL_NAME, NobodySubscribes, Stage
from muster.conformance.trial import CALL_SECONDS, Trial
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer

__all__ = ["Case", "Group", "Implementation", "NotTested", "Options", "Outcome", "Report", "Verdict", "chosen", "run"]

_SHUFFLES: Final = (None, 1)
"""Every case is played once as it is written, and once with the snapshot's objects in another order."""
_LONGEST_CASE_SECONDS: Final = 120.0


class Verdict(StrEnum):
    """What came of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """What came of one case; `why` is empty if it passed. `unsafe`: an answer would have done harm."""

    case: Case
    verdict: Verdict
    why: str = ""
    unsafe: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Implementation:
    """Who was tested, by its own word."""

    name: str
    version: str
    features: frozenset[Feature]


@dataclass(frozen=True)
class Report:
    """What came of all of them."""

    implementation: Implementation
    outcomes: tuple[Outcome, ...]
    required: frozenset[Group]

    def is_required(self, outcome: Outcome) -> bool:
        """Nobody may fail it: a case of a required group, and any in which an answer would have done harm."""
        return outcome.case.group in self.required or outcome.unsafe

    @property
    def conforms(self) -> bool:
        return not any(outcome.verdict is Verdict.FAILED and self.is_required(outcome) for outcome in self.outcomes)

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict is verdict for outcome in self.outcomes)


class NotTested(RuntimeError):
    """The suite could not begin: nobody answers at the target, or nobody subscribes."""


@dataclass(frozen=True)
class Options:
    """What to test, and where."""

    target: str
    listen: str
    wait_seconds: float = 60.0
    """How long the implementation has to come up."""
    call_seconds: float = CALL_SECONDS
    """How long it has for an answer, where a case says nothing else."""
    only: tuple[str, ...] = ()
    """Beginnings of the ids of cases; empty: all."""
    required: frozenset[Group] = frozenset({Group.SAFETY})


def chosen(only: Collection[str]) -> list[Case]:
    """Cases whose ids begin with one of these; all if there are none."""
    return [case for case in CASES if not only or case.id.startswith(tuple(only))]


async def run(options: Options, tell: Callable[[Outcome], None] = lambda _: None) -> Report:
    """Run the suite; `tell` hears of every case when it is over. Raises NotTested, CannotListen."""
    stage = Stage()
    server = RpcServer(options.listen, PLAIN_TEXT, "conformance")
    server.add(state_grpc.add_ClusterStateServiceServicer_to_server, stage, FULL_NAME)
    await server.start()
    server.set_ready(True)
    channel = open_channel(options.target, PLAIN_TEXT)
    try:
        stub = pb_grpc.PlacementServiceStub(channel)
        implementation = await _described(options, stage, stub)
        outcomes = await _run_all(options, stage, stub, implementation, tell)
        return Report(implementation, tuple(outcomes), options.required)
    finally:
        await channel.close()
        await server.stop(grace_seconds=0)


async def _described(options: Options, stage: Stage, stub: "pb_grpc.PlacementServiceAsyncStub") -> Implementation:
    until = time.monotonic() + options.wait_seconds
    try:
        await stage.subscribed(options.wait_seconds)
    except NobodySubscribes as error:
        raise NotTested(
            f"{error}; start the implementation with {options.listen} as the address of its cluster-state"
        ) from None
    left = max(1.0, until - time.monotonic())
    try:
        answer: pb.DescribeResponse = await stub.Describe(pb.DescribeRequest(), timeout=left, wait_for_ready=True)
    except aio.AioRpcError as error:
        raise NotTested(f"{options.target} does not answer Describe: {error.code().name} {error.details()}") from None
    features = frozenset(FEATURES[number] for number in answer.features if number in FEATURES)
    return Implementation(answer.implementation, answer.version, features)


async def _run_all(
    options: Options,
    stage: Stage,
    stub: "pb_grpc.PlacementServiceAsyncStub",
    implementation: Implementation,
    tell: Callable[[Outcome], None],
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    gone = ""
    for case in chosen(options.only):
        missing = [feature.value for feature in case.needs if feature not in implementation.features]
        if missing:
            outcome = Outcome(case, Verdict.SKIPPED, f"it does not have the feature {', '.join(missing)}")
        elif gone:
            outcome = Outcome(case, Verdict.FAILED, gone)
        else:
            try:
                outcome = await _judged(case, partial(_trial, options, stage, stub))
            except NobodySubscribes as error:
                gone = f"the implementation is gone: {error}"
                outcome = Outcome(case, Verdict.FAILED, gone)
        tell(outcome)
        outcomes.append(outcome)
    return outcomes


def _trial(options: Options, stage: Stage, stub: "pb_grpc.PlacementServiceAsyncStub", order: Random | None) -> Trial:
    stage.order = order
    return Trial(stage, stub, options.call_seconds)


async def _judged(case: Case, begin: Callable[[Random | None], Trial]) -> Outcome:
    """Play the case in every order. Raises NobodySubscribes."""
    began = time.monotonic()

    def outcome(verdict: Verdict, why: str = "", *, unsafe: bool = False) -> Outcome:
        return Outcome(case, verdict, why, unsafe, time.monotonic() - began)

    for seed in _SHUFFLES[-1:] if case.random else _SHUFFLES:
        order = None if seed is None else Random(seed)  # noqa: S311 (the same in every run)
        note = "" if seed is None else "; with the snapshot in another order"
        try:
            async with asyncio.timeout(_LONGEST_CASE_SECONDS):
                await case.play(begin(order))
        except Unsafe as error:
            return outcome(Verdict.FAILED, f"{error}{note}", unsafe=True)
        except Failed as error:
            return outcome(Verdict.FAILED, f"{error}{note}")
        except TimeoutError:
            return outcome(Verdict.FAILED, f"it was not over after {_LONGEST_CASE_SECONDS:g} s{note}")
    return outcome(Verdict.PASSED)
