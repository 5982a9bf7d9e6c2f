"""What an attempt at a write came to: done for good, to be tried again, or a sign that the API server wants less.

    answer                      verdict
    no answer, 503              Strained: everybody pauses, then all is repeated, a few at a time
    429                         Strained, for as long as Retry-After says
    408, 500, 502, 504          Again: this one only, later
    anything else               the answer is final; its meaning is the writer's to know

Repeating is safe because every write carries the uid of the object it is meant for.
"""

from typing import Final

from msgspec import Struct

from muster.kube.responses import ApiStatusError, KubeUnreachable, Response

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


def repeatable(response: Response) -> Again | Strained | None:
    """What to make of an answer; None: it is final."""
    status = response.status
    if status < 500 and status not in (408, 429):
        return None
    error = ApiStatusError.from_response(response)
    seconds = error.retry_after_seconds
    if seconds is not None:
        seconds = min(seconds, _LONGEST_PAUSE_SECONDS)
    if status in (429, 503):
        return Strained(str(error), seconds)
    if status in (408, 500, 502, 504):
        return Again(str(error), seconds)
    return None


def said(response: Response) -> str:
    """What the API server said, for people."""
    return str(ApiStatusError.from_response(response))[:512]
