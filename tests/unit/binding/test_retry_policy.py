"""Which answers are final, and when the others are retried."""

import pytest

from muster.binding.retry_policy import Retry, ServerUnavailable, blocked_by_budget, retryable, status_text
from muster.kube.responses import Response


def answer(status: int, body: bytes = b"", **headers: str) -> Response:
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 409, 413, 422, 501])
def test_final_answers_are_not_retried(status: int) -> None:
    assert retryable(answer(status)) is None


@pytest.mark.parametrize("status", [408, 500, 502, 504])
def test_server_error_retries_only_this_write(status: int) -> None:
    outcome = retryable(answer(status))
    assert isinstance(outcome, Retry)
    assert outcome.after_seconds is None


@pytest.mark.parametrize("status", [429, 503])
def test_throttling_pauses_all_writes(status: int) -> None:
    outcome = retryable(answer(status, Retry_After="7"))
    assert isinstance(outcome, ServerUnavailable)
    assert outcome.after_seconds == 7
    assert not outcome.unreachable


def test_pause_is_read_from_the_body() -> None:
    outcome = retryable(answer(429, b'{"reason":"TooManyRequests","message":"slow","details":{"retryAfterSeconds":2}}'))
    assert isinstance(outcome, ServerUnavailable)
    assert outcome.after_seconds == 2
    assert outcome.reason == "429 TooManyRequests: slow"


@pytest.mark.parametrize("text", ["86400", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "soon"])
def test_pause_is_bounded(text: str) -> None:
    outcome = retryable(answer(429, Retry_After=text))
    assert isinstance(outcome, ServerUnavailable)
    assert outcome.after_seconds in (None, 30.0)


def test_status_text_is_bounded() -> None:
    assert len(status_text(answer(500, b'{"message":"' + b"x" * 100_000 + b'"}'))) <= 512


def test_budget_refusal_retries_only_this_pod_and_names_the_budget() -> None:
    body = (
        b'{"reason":"TooManyRequests","message":"Cannot evict pod.","details":{"retryAfterSeconds":10,"causes":'
        b'[{"reason":"DisruptionBudget","message":"The disruption budget web needs 1."}]}}'
    )
    outcome = blocked_by_budget(answer(429, body))
    assert outcome == Retry("429 TooManyRequests: Cannot evict pod. The disruption budget web needs 1.", 10)


@pytest.mark.parametrize(
    "body", [b"", b"slow down", b"[]", b'{"message":"slow"}', b'{"details":{"causes":[{"reason":"Other"}]}}']
)
def test_other_429_answers_pause_all_writes(body: bytes) -> None:
    assert blocked_by_budget(answer(429, body)) is None
    assert isinstance(retryable(answer(429, body)), ServerUnavailable)
