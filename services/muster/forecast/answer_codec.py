"""Encodes answers to what-if as messages."""

from collections.abc import Sequence

from muster.forecast.alternatives import Alternative
from muster.forecast.snapshot import Snapshot
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


def encode_basis(present: Snapshot) -> pb.Basis:
    """From which state of the cluster an answer is."""
    return pb.Basis(
        revision=encode_revision(present.revision),
        read_unix_millis=int(present.unix_seconds * 1000),
        exact=present.exact,
    )
