"""Encodes answers to what-if as messages."""

from collections.abc import Sequence

from muster.forecast.alternatives import Alternative
from muster.forecast.run_lengths import Known
from muster.forecast.snapshot import Snapshot
from muster.forecast.starts import Starts
from muster.forecast.v1 import forecast_pb2 as pb
from muster.forecast.whatif import Answer, Question, Verdict
from muster.rpc.watch_codec import encode_revision

VERDICTS = {
    Verdict.NOW: pb.VERDICT_NOW,
    Verdict.LATER: pb.VERDICT_LATER,
    Verdict.NEVER: pb.VERDICT_NEVER,
    Verdict.UNKNOWN: pb.VERDICT_UNKNOWN,
}


def encode_answer(
    answer: Answer, remedies: Sequence[Alternative], question: Question, replaces: Sequence[str], present: Snapshot
) -> pb.WhatIfResponse:
    """The answer, with the changes that would help and the gangs that the question replaces."""
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in question.added.pods}
    return pb.WhatIfResponse(
        verdict=VERDICTS[answer.verdict],
        after_seconds=answer.after_seconds,
        pods=[
            pb.PlacedPod(pod=names[uid], node=node, rank=answer.ranks.get(uid)) for uid, node in answer.nodes.items()
        ],
        preempts=[pb.PreemptedGang(gang=gang, pods=pods) for gang, pods in answer.victims.items()],
        after_the_ends_of=answer.waits_for,
        reason=answer.reason,
        would_start_now_if=[each.text for each in remedies],
        replaces=replaces,
        basis=encode_basis(present),
    )


def encode_starts(starts: Starts, present: Snapshot) -> pb.StartsResponse:
    """When gangs start."""
    return pb.StartsResponse(
        gangs=[
            pb.ExpectedStart(
                gang=each.gang,
                verdict=VERDICTS[each.verdict],
                expected_unix_millis=_millis(each.expected),
                earliest_unix_millis=_millis(each.earliest),
                latest_unix_millis=_millis(each.latest),
            )
            for each in starts.gangs
        ],
        basis=encode_basis(present),
        assumptions=pb.Assumptions(
            declared=starts.ends.get(Known.DECLARED, 0),
            learnt=starts.ends.get(Known.LEARNT, 0),
            unknown=starts.ends.get(Known.UNKNOWN, 0),
        ),
        partial=starts.partial,
        range_share=starts.range_share,
    )


def _millis(unix_seconds: float | None) -> int:
    return int(unix_seconds * 1000) if unix_seconds is not None else 0


def encode_basis(present: Snapshot) -> pb.Basis:
    """From which state of the cluster an answer is."""
    return pb.Basis(
        revision=encode_revision(present.revision),
        read_unix_millis=int(present.unix_seconds * 1000),
        exact=present.exact,
    )
