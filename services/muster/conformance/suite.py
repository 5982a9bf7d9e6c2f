"""The conformance suite of placement: runs the cases against an implementation and reports the outcomes; repeats the
failed call of a file.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Final

from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2_grpc as state_grpc
from muster.config.settings import PLAIN_TEXT
from muster.conformance.case import FEATURES, Case, CaseGroup, Failed, Feature, Unsafe
from muster.conformance.case_run import CALL_SECONDS, CaseRun
from muster.conformance.cases import CASES
from muster.conformance.cluster_stream import FULL_NAME, ClusterStream, NoSubscriber
from muster.conformance.failed_call import BadFile, FailedCall, read, write
from muster.conformance.failed_call_replay import Repetition, repeat
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer

__all__ = [
    "BadFile",
    "Case",
    "CaseGroup",
    "FailedCall",
    "Implementation",
    "NotTested",
    "Options",
    "Outcome",
    "Repetition",
    "Report",
    "Verdict",
    "read",
    "replay",
    "run",
    "selected",
]

_SHUFFLES: Final = (None, 1)
"""Every case runs with the snapshot in the order of the case, and with the snapshot shuffled."""
_MAX_CASE_SECONDS: Final = 120.0


class Verdict(StrEnum):
    """Verdict on one case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """Outcome of one case; `reason` is empty if it passed. `unsafe`: acting on an answer would have done harm. `file`:
    the failed call, for `replay`.
    """

    case: Case
    verdict: Verdict
    reason: str = ""
    unsafe: bool = False
    seconds: float = 0.0
    file: Path | None = None


@dataclass(frozen=True)
class Implementation:
    """The implementation under test as it describes itself."""

    name: str
    version: str
    features: frozenset[Feature]

    @property
    def label(self) -> str:
        """Name and version in one."""
        return f"{self.name or 'an implementation without a name'} {self.version}".strip()


@dataclass(frozen=True)
class Report:
    """Outcomes of all cases."""

    implementation: Implementation
    outcomes: tuple[Outcome, ...]
    required: frozenset[CaseGroup]

    def is_required(self, outcome: Outcome) -> bool:
        """The case must pass: its group is required, or an answer was unsafe."""
        return outcome.case.group in self.required or outcome.unsafe

    @property
    def conforms(self) -> bool:
        return not any(outcome.verdict is Verdict.FAILED and self.is_required(outcome) for outcome in self.outcomes)

    def count(self, verdict: Verdict) -> int:
        return sum(outcome.verdict is verdict for outcome in self.outcomes)


class NotTested(RuntimeError):
    """The suite could not start: the target does not answer, or no implementation subscribes."""


@dataclass(frozen=True)
class Options:
    """Addresses, time limits and the selection of cases."""

    target: str
    listen: str
    wait_seconds: float = 60.0
    """Time for the implementation to start."""
    call_seconds: float = CALL_SECONDS
    """Deadline of a call unless the case sets another one."""
    only: tuple[str, ...] = ()
    """Prefixes of case ids; empty: all cases."""
    required: frozenset[CaseGroup] = frozenset({CaseGroup.SAFETY})
    failures: Path | None = None
    """Directory for files of failed calls; None: none is written."""


def selected(only: Collection[str]) -> list[Case]:
    """Cases whose ids begin with one of the prefixes; all cases without any prefix."""
    return [case for case in CASES if not only or case.id.startswith(tuple(only))]


async def run(options: Options, on_outcome: Callable[[Outcome], None] = lambda _: None) -> Report:
    """Run the suite; `on_outcome` is called after each case. Raises NotTested, CannotListen, and OSError if a file of
    a failed call cannot be written.
    """
    async with _connected(options) as suite:
        implementation = await suite.describe()
        outcomes = await suite.run_all(implementation, on_outcome)
        return Report(implementation, tuple(outcomes), options.required)


async def replay(failed: FailedCall, options: Options) -> Repetition:
    """Repeat a failed call. Raises NotTested, CannotListen."""
    async with _connected(options) as suite:
        return await suite.repeat(failed, await suite.describe())


@asynccontextmanager
async def _connected(options: Options) -> AsyncIterator["_Suite"]:
    """Serve cluster-state to the implementation, with a channel to it."""
    stream = ClusterStream()
    server = RpcServer(options.listen, PLAIN_TEXT, "conformance")
    server.add(state_grpc.add_ClusterStateServiceServicer_to_server, stream, FULL_NAME)
    await server.start()
    server.set_ready(True)
    channel = open_channel(options.target, PLAIN_TEXT)
    try:
        yield _Suite(options, stream, pb_grpc.PlacementServiceStub(channel))
    finally:
        await channel.close()
        await server.stop(grace_seconds=0)


class _Suite:
    def __init__(self, options: Options, stream: ClusterStream, stub: "pb_grpc.PlacementServiceAsyncStub") -> None:
        self._options = options
        self._stream = stream
        self._stub = stub

    async def describe(self) -> Implementation:
        """Wait for the implementation to subscribe and ask what it is. Raises NotTested."""
        options = self._options
        until = time.monotonic() + options.wait_seconds
        try:
            await self._stream.subscribed(options.wait_seconds)
        except NoSubscriber as error:
            raise NotTested(
                f"{error}; start the implementation with {options.listen} as the address of its cluster-state"
            ) from None
        left = max(1.0, until - time.monotonic())
        try:
            answer: pb.DescribeResponse = await self._stub.Describe(
                pb.DescribeRequest(), timeout=left, wait_for_ready=True
            )
        except aio.AioRpcError as error:
            raise NotTested(
                f"{options.target} does not answer Describe: {error.code().name} {error.details()}"
            ) from None
        features = frozenset(FEATURES[number] for number in answer.features if number in FEATURES)
        return Implementation(answer.implementation, answer.version, features)

    async def run_all(self, implementation: Implementation, on_outcome: Callable[[Outcome], None]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        gone = ""
        for case in selected(self._options.only):
            missing = [feature.value for feature in case.needs if feature not in implementation.features]
            if missing:
                outcome = Outcome(case, Verdict.SKIPPED, f"the implementation lacks the feature {', '.join(missing)}")
            elif gone:
                outcome = Outcome(case, Verdict.FAILED, gone)
            else:
                try:
                    outcome = await self._run_case(case, implementation)
                except NoSubscriber as error:
                    gone = f"the implementation is gone: {error}"
                    outcome = Outcome(case, Verdict.FAILED, gone)
            on_outcome(outcome)
            outcomes.append(outcome)
        return outcomes

    async def repeat(self, failed: FailedCall, implementation: Implementation) -> Repetition:
        """Repeat a failed call. Raises NotTested."""
        try:
            async with CaseRun(self._stream, self._stub, self._options.call_seconds) as run:
                return await repeat(failed, run, implementation.label)
        except NoSubscriber as error:
            raise NotTested(f"the implementation is gone: {error}") from None

    async def _run_case(self, case: Case, implementation: Implementation) -> Outcome:
        """Run the case with every order of the snapshot. Raises NoSubscriber."""
        began = time.monotonic()

        def outcome(verdict: Verdict, reason: str = "", *, unsafe: bool = False, file: Path | None = None) -> Outcome:
            return Outcome(case, verdict, reason, unsafe, time.monotonic() - began, file)

        for seed in _SHUFFLES[-1:] if case.random else _SHUFFLES:
            self._stream.order = None if seed is None else Random(seed)  # noqa: S311 (the same in every run)
            note = "" if seed is None else "; with the snapshot shuffled"
            try:
                run = CaseRun(self._stream, self._stub, self._options.call_seconds)
                async with run, asyncio.timeout(_MAX_CASE_SECONDS):
                    await case.function(run)
            except Unsafe as error:
                file = self._written(case, implementation, run, error)
                return outcome(Verdict.FAILED, f"{error}{note}", unsafe=True, file=file)
            except Failed as error:
                file = self._written(case, implementation, run, error) if case.random else None
                return outcome(Verdict.FAILED, f"{error}{note}", file=file)
            except TimeoutError:
                return outcome(Verdict.FAILED, f"the case was not finished after {_MAX_CASE_SECONDS:g} s{note}")
        return outcome(Verdict.PASSED)

    def _written(self, case: Case, implementation: Implementation, run: CaseRun, error: Failed) -> Path | None:
        """The file of the call that failed. Raises OSError."""
        call = error.call or run.last
        if self._options.failures is None or call is None:
            return None
        path = self._options.failures / f"{case.id}.json"
        write(FailedCall(case.id, str(error), call, error.expected), implementation.label, path)
        return path
