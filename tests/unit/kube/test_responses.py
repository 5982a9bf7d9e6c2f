"""Errors from responses, and from missing responses."""

import pytest

from muster.kube.responses import ApiStatusError, KubeUnreachable, Response


def error(status: int, body: bytes, **headers: str) -> ApiStatusError:
    return ApiStatusError.from_response(Response(status, {k.replace("_", "-"): v for k, v in headers.items()}, body))


def test_status_is_decoded() -> None:
    found = error(409, b'{"kind":"Status","reason":"Conflict","message":"pod x is taken","details":{"name":"x"}}')
    assert (found.status, found.reason, found.message) == (409, "Conflict", "pod x is taken")
    assert str(found) == "409 Conflict: pod x is taken"
    assert found.retry_after_seconds is None


@pytest.mark.parametrize(
    "body", [b"<html>bad gateway</html>", b"", b"[]", b'"text"', b"\xff\xfe", b'{"message":7}', b'{"details":[]}']
)
def test_body_that_is_not_a_status_is_quoted(body: bytes) -> None:
    found = error(502, body)
    assert found.status == 502
    assert found.message


def test_long_body_is_truncated() -> None:
    assert len(str(error(502, b"x" * 1_000_000))) < 400


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("5", b"{}", 5),
        ("5", b'{"details":{"retryAfterSeconds":9}}', 5),
        ("", b'{"details":{"retryAfterSeconds":9}}', 9),
        ("Wed, 21 Oct 2026 07:28:00 GMT", b"{}", None),
        ("-3", b"{}", None),
        ("²", b"{}", None),
    ],
)
def test_retry_after(header: str, body: bytes, seconds: float | None) -> None:
    assert error(429, body, Retry_After=header).retry_after_seconds == seconds


def test_missing_response_has_url_and_reason() -> None:
    assert str(KubeUnreachable("https://c/api", OSError("refused"))) == (
        "the API server cannot be reached at https://c/api: refused"
    )
    assert "no answer in time" in str(KubeUnreachable("https://c/api", TimeoutError()))
    assert "ConnectionResetError" in str(KubeUnreachable("https://c/api", ConnectionResetError()))
