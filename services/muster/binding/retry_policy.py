"""What an attempt at a write came to: done for good, to be tried again, or a sign that the API server wants less.

    answer                      verdict
    no answer, 503              Strained: everybody pauses, then all is repeated, a few at a time
    429                         Strained, for as long as Retry-After says
    429 of a disruption budget  Again: it is about this pod, not about the API server
    408, 500, 502, 504          Again: this one only, later
    anything else               the answer is final; its meaning is the writer's to know

Repeating is safe because every write carries the uid of the object it is meant for.
"""

from typing import Final

import msgspec
from msgspec import Struct

from muster.kube.responses import ApiStatusError, KubeUnreachable, Response

_BUDGET_CAUSE: Final = "DisruptionBudget"
_LONGEST_PAUSE_SECONDS: Final = 30.0  # whatever Retry-After says; deadlines bound it further


class Done(Struct, frozen=True):
    """It was settled, whatever came of it."""


class Again(Struct, frozen=True):
    """Try this one again: after the given seconds, or a pause that grows with every try."""

    why: str
    after_seconds: float | None = None


class Strained(Struct, frozen=True):
    """Try again, but nobody sends anything for the given seconds, or a pause that grows while nothing gets through."""

    why: str
    after_seconds: float | None = None
    unreachable: bool = False


Verdict = Done | Again | Strained
DONE: Final = Done()


def no_answer(error: KubeUnreachable) -> Strained:
    """What to make of a request without an answer."""
    return Strained(str(error), unreachable=True)


class _Cause(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


class _Details(Struct, frozen=True):
    causes: list[_Cause] | None = None


class _Refusal(Struct, frozen=True):
    details: _Details | None = None


_refusal: Final = msgspec.json.Decoder(_Refusal)


def refused_by_budget(response: Response) -> Again | None:
    """An eviction that a disruption budget has no room for, with the budget's name and numbers; else None."""
    if response.status != 429:
        return None
    try:
        details = _refusal.decode(response.body).details
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    causes = [each for each in (details and details.causes) or () if each.reason == _BUDGET_CAUSE]
    if not causes:
        return None
    told = " ".join([said(response), *(each.message for each in causes if each.message)])
    return Again(told, _bounded(ApiStatusError.from_response(response).retry_after_seconds))


def repeatable(response: Response) -> Again | Strained | None:
    """What to make of an answer; None: it is final."""
    status = response.status
    if status < 500 and status not in (408, 429):
        return None
    error = ApiStatusError.from_response(response)
    seconds = _bounded(error.retry_after_seconds)
    if status in (429, 503):
        return Strained(str(error), seconds)
    if status in (408, 500, 502, 504):
        return Again(str(error), seconds)
    return None


def said(response: Response) -> str:
    """What the API server said, for people."""
    return str(ApiStatusError.from_response(response))[:512]


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, _LONGEST_PAUSE_SECONDS)
