"""Retry policy of writes: whether an attempt is final, is retried alone, or makes all writes back off.

    answer                      outcome
    no answer, 503              ServerUnavailable: all writes pause, then resume with few at a time
    429                         ServerUnavailable, for the seconds of Retry-After
    429 of a disruption budget  Retry: it concerns this pod, not the API server
    408, 500, 502, 504          Retry: this write only
    anything else               final; its meaning depends on the kind of write

Retries are safe because every write carries the uid of its object.
"""

from typing import Final

import msgspec
from msgspec import Struct

from muster.kube.objects import UNREADABLE
from muster.kube.responses import ApiStatusError, KubeUnreachable, Response

_BUDGET_CAUSE: Final = "DisruptionBudget"
_MAX_PAUSE_SECONDS: Final = 30.0  # an upper bound for Retry-After; deadlines bound it further
_MAX_TEXT_CHARACTERS: Final = 512


class Done(Struct, frozen=True):
    """The write is settled, successfully or not."""


class Retry(Struct, frozen=True):
    """Retry this write after the given seconds, or after an exponential backoff."""

    reason: str
    after_seconds: float | None = None


class ServerUnavailable(Struct, frozen=True):
    """Retry this write, and pause all writes for the given seconds, or for an exponential backoff."""

    reason: str
    after_seconds: float | None = None
    unreachable: bool = False


WriteOutcome = Done | Retry | ServerUnavailable
DONE: Final = Done()


def unreachable_outcome(error: KubeUnreachable) -> ServerUnavailable:
    """Outcome of a request without an answer."""
    return ServerUnavailable(str(error), unreachable=True)


class _Cause(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


class _Details(Struct, frozen=True):
    causes: list[_Cause] | None = None


class _Refusal(Struct, frozen=True):
    details: _Details | None = None


_refusal: Final = msgspec.json.Decoder(_Refusal)


def blocked_by_budget(response: Response) -> Retry | None:
    """A retry, with the budget's name and numbers, if a disruption budget blocks the eviction; else None."""
    if response.status != 429:
        return None
    try:
        details = _refusal.decode(response.body).details
    except UNREADABLE:
        return None
    causes = [each for each in (details and details.causes) or () if each.reason == _BUDGET_CAUSE]
    if not causes:
        return None
    text = " ".join([status_text(response), *(each.message for each in causes if each.message)])
    return Retry(text, _bounded(ApiStatusError.from_response(response).retry_after_seconds))


def retryable(response: Response) -> Retry | ServerUnavailable | None:
    """The outcome of an answer that has to be retried; None: the answer is final."""
    status = response.status
    if status < 500 and status not in (408, 429):
        return None
    error = ApiStatusError.from_response(response)
    seconds = _bounded(error.retry_after_seconds)
    if status in (429, 503):
        return ServerUnavailable(str(error), seconds)
    if status in (408, 500, 502, 504):
        return Retry(str(error), seconds)
    return None


def is_certain(response: Response) -> bool:
    """Whether the answer says if the write took effect. Of a write without an answer that is not known either."""
    return response.status < 500 and response.status != 408


def status_text(response: Response) -> str:
    """Status, reason and message of the answer, for messages."""
    return str(ApiStatusError.from_response(response))[:_MAX_TEXT_CHARACTERS]


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, _MAX_PAUSE_SECONDS)
