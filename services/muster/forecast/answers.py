"""Answers a question as users ask it: the verdict, and the changes that would help if it is not "now"."""

from collections.abc import Mapping
from typing import NamedTuple

from muster.forecast.answer_codec import encode_answer
from muster.forecast.questions import Asked
from muster.forecast.remedies import remedies
from muster.forecast.snapshot import Snapshot
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.whatif import Forecaster, Verdict


class Limits(NamedTuple):
    """How far to look ahead in virtual time, and how long: for the verdict, and again for changes that would help."""

    horizon_seconds: float
    limit_seconds: float


async def answer_to(
    asked: Asked, present: Snapshot, priorities: Mapping[str, int], limits: Limits, forecaster: Forecaster
) -> pb.WhatIfResponse:
    """What would happen. `priorities`: values of the PriorityClasses that may be proposed. Raises BadQuestion."""
    question, replaces = asked.question(present.batch)
    answer = await forecaster.ask(present, question, **limits._asdict())
    helping = []
    if answer.verdict is not Verdict.NOW:
        helping = await remedies(forecaster, present, question, priorities, limits.limit_seconds)
    return encode_answer(answer, helping, question, replaces, present)
