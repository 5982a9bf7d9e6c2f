"""Repeats a failed call: streams the same cluster, sends the same request and judges the answer as the case did."""

from dataclasses import dataclass

from muster.conformance.case import Failed
from muster.conformance.case_run import CaseRun, expect_result
from muster.conformance.failed_call import FailedCall
from muster.placement.v1 import placement_pb2 as pb


@dataclass(frozen=True)
class Repetition:
    """The outcome; `problem` is empty if the answer is right now."""

    implementation: str
    response: pb.SolveResponse | None
    problem: str


async def repeat(failed: FailedCall, run: CaseRun, implementation: str) -> Repetition:
    """Repeat the call. Raises NoSubscriber."""
    await run.restore(failed.call.cluster)
    problem = ""
    try:
        response = await run.call(failed.call.request)
        if failed.expected is not None and response.results:
            expect_result(response.results[0], failed.expected)
    except Failed as error:
        problem = str(error)
    return Repetition(implementation, run.last.response if run.last is not None else None, problem)
