"""Failures of controllers to create pods are read from events: short, in one line, and equal if the cause is equal."""

from typing import Any

import msgspec
import pytest

from muster.kube.creation_failures import (
    MAX_CHARACTERS,
    CreationFailure,
    UnreadableEvents,
    events_query,
    read_events,
)

QUOTA = "exceeded quota: team, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=24"
FORBIDDEN = f'pods "train-x7k2p" is forbidden: {QUOTA}'


def event(message: Any = f"Error creating: {FORBIDDEN}", *, kind: str = "Job", name: str = "train", **more: Any) -> Any:
    return {
        "metadata": {"name": f"{name}.1", "creationTimestamp": "2026-01-01T00:00:01Z"},
        "involvedObject": {"kind": kind, "name": name, "uid": "u"},
        "reason": "FailedCreate",
        "type": "Warning",
        "message": message,
        **more,
    }


def read(*events: Any, **metadata: str) -> tuple[CreationFailure, ...]:
    return read_events(msgspec.json.encode({"items": events, "metadata": metadata})).failures


def text(*events: Any) -> str:
    (failure,) = read(*events)
    return failure.text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (f"Error creating: {FORBIDDEN}", QUOTA),
        (f"(combined from similar events): Error creating: {FORBIDDEN}", QUOTA),
        (f"create Pod train-3 in StatefulSet train failed error: {FORBIDDEN}", QUOTA),
        (
            'Error creating: pods "train-x7k2p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot',
            'violates PodSecurity "restricted:latest": runAsNonRoot',
        ),
        (
            'Error creating: admission webhook "policy.example.com" denied the request: train-0-x7k2p has no owner',
            'admission webhook "policy.example.com" denied the request: train-* has no owner',
        ),
        ("Error creating: train-xxxxxx\nstack trace", "train-xxxxxx"),
        ("red \x1b[31m", r"red \x1b[31m"),
    ],
)
def test_names_of_pods_are_left_out(message: str, expected: str) -> None:
    assert text(event(message)) == f"Job train: {expected}"


def test_a_long_message_is_cut() -> None:
    found = text(event("Error creating: " + "x" * 10_000))
    assert len(found) == MAX_CHARACTERS
    assert found.endswith("x…")


@pytest.mark.parametrize(
    "reason", ["FailedCreate", "FailedCreatePod", "FailedToCreateWorkerPod", "FailedToCreateHeadPod"]
)
def test_reasons_of_several_controllers_count(reason: str) -> None:
    assert read(event(reason=reason))


def test_reasons_of_queue_jobs_count() -> None:
    assert text(event("no", kind="QueueJob", reason="ExceededQuota")) == "QueueJob train: no"
    assert read(event("no", reason="Conflict")) == ()


@pytest.mark.parametrize("reason", ["BackoffLimitExceeded", "FailedCreateService", "NotFailedCreate", "", None])
def test_other_reasons_do_not_count(reason: str | None) -> None:
    assert read(event(reason=reason)) == ()


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({"lastTimestamp": "2026-01-01T00:00:09Z"}, 9),
        ({"lastTimestamp": None, "eventTime": "2026-01-01T00:00:08.123456Z"}, 8),
        ({"eventTime": "2026-01-01T00:00:08Z", "series": {"lastObservedTime": "2026-01-01T00:00:30Z"}}, 30),
        ({"lastTimestamp": "soon"}, 1),
    ],
)
def test_the_last_time_counts(times: dict[str, Any], seconds: int) -> None:
    (failure,) = read(event(**times))
    assert failure.seen_seconds == 1767225600 + seconds


@pytest.mark.parametrize(
    "odd",
    [
        event(None),
        event(""),
        event(involvedObject=dict[str, str]()),
        event(involvedObject={"kind": "Job", "name": "train", "uid": None}),
    ],
)
def test_events_that_say_nothing_are_left_out(odd: Any) -> None:
    assert read(odd, event())[0].text == f"Job train: {QUOTA}"
    assert len(read(odd, event())) == 1


def test_pages_follow_until_the_last() -> None:
    page = read_events(msgspec.json.encode({"items": [event()], "metadata": {"continue": "abc"}}))
    assert events_query(5, page.continue_token)["continue"] == "abc"
    assert "continue" not in events_query(5)
    assert read_events(b'{"metadata": {}, "items": null}').continue_token == ""


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items": [7]}', b'{"items": [{"message": {}}]}', b"\xff"])
def test_other_responses_are_errors(body: bytes) -> None:
    with pytest.raises(UnreadableEvents):
        read_events(body)
