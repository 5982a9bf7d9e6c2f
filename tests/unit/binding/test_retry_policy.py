"""Which answers are final, and how long to wait after the others."""

import pytest

from muster.binding.retry_policy import Again, Strained, refused_by_budget, repeatable, said
from muster.kube.responses import Response


def answer(status: int, body: bytes = b"", **headers: str) -> Response:
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 409, 413, 422, 501])
def test_final(status: int) -> None:
    assert repeatable(answer(status)) is None


@pytest.mark.parametrize("status", [408, 500, 502, 504])
def test_this_one_again(status: int) -> None:
    verdict = repeatable(answer(status))
    assert isinstance(verdict, Again)
    assert verdict.after_seconds is None


@pytest.mark.parametrize("status", [429, 503])
def test_everybody_pauses(status: int) -> None:
    verdict = repeatable(answer(status, Retry_After="7"))
    assert isinstance(verdict, Strained)
    assert verdict.after_seconds == 7
    assert not verdict.unreachable


def test_the_pause_may_be_in_the_body() -> None:
    verdict = repeatable(
        answer(429, b'{"reason":"TooManyRequests","message":"slow","details":{"retryAfterSeconds":2}}')
    )
    assert isinstance(verdict, Strained)
    assert verdict.after_seconds == 2
    assert verdict.why == "429 TooManyRequests: slow"


@pytest.mark.parametrize("text", ["86400", "Wed, 21 Oct 2026 07:28:00 GMT", "-1", "soon"])
def test_an_absurd_pause_is_bounded(text: str) -> None:
    verdict = repeatable(answer(429, Retry_After=text))
    assert isinstance(verdict, Strained)
    assert verdict.after_seconds in (None, 30.0)


def test_what_was_said_is_bounded() -> None:
    assert len(said(answer(500, b'{"message":"' + b"x" * 100_000 + b'"}'))) <= 512


def test_a_refusal_of_a_disruption_budget_is_about_one_pod_and_names_the_budget() -> None:
    body = (
        b'{"reason":"TooManyRequests","message":"Cannot evict pod.","details":{"retryAfterSeconds":10,"causes":'
        b'[{"reason":"DisruptionBudget","message":"The disruption budget web needs 1."}]}}'
    )
    verdict = refused_by_budget(answer(429, body))
    assert verdict == Again("429 TooManyRequests: Cannot evict pod. The disruption budget web needs 1.", 10)


@pytest.mark.parametrize(
    "body", [b"", b"slow down", b"[]", b'{"message":"slow"}', b'{"details":{"causes":[{"reason":"Other"}]}}']
)
def test_other_refusals_are_about_everybody(body: bytes) -> None:
    assert refused_by_budget(answer(429, body)) is None
    assert isinstance(repeatable(answer(429, body)), Strained)
