"""Write against an API server: conditions as kube-scheduler keeps them, and rate-limited events."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from builders.binding.service import Rig, event, rig, waiting
from builders.e2e.faults import WRITES_OF_STATUS, Requests
from builders.wait import eventually
from muster.binding import event_series
from muster.binding import events as events_module

READS_OF_PODS = Requests("GET", "/pods/[^/]+")
NEW_EVENTS = Requests("POST", "/events")
COUNTS = Requests("PATCH", "/events/[^/]+")


@pytest.fixture
async def muster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(events_module, "COUNT_INTERVAL_SECONDS", 0.05)
    async with rig(tmp_path, requests_in_flight=8) as found:
        yield found


async def condition(muster: Rig, pod: str, kind: str = "PodScheduled") -> dict[str, Any]:
    (found,) = (each for each in (await muster.pod(pod))["status"]["conditions"] if each["type"] == kind)
    return found  # type: ignore[no-any-return]


# -- conditions

Known = dict[str, Any]
AS_KNOWN = pytest.mark.parametrize(
    "known", [{}, {"first": True}, {"changed": True}], ids=["unknown", "first", "changed"]
)
"""Knowledge that the caller claims of the pod's conditions: a test holds in each case, whether it is true or not."""


@AS_KNOWN
async def test_i10_pending_pod_has_a_condition_with_the_reason(muster: Rig, known: Known) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    response = await muster.write([waiting(pod, **known) for pod in pods])
    assert (response.written, response.gone, list(response.failures)) == (2, 0, [])
    found = await condition(muster, "trainer-1")
    assert (found["status"], found["reason"], found["message"]) == ("False", "Unschedulable", "0/20 nodes are free")
    assert found["lastTransitionTime"]
    assert found.get("lastProbeTime") is None


@AS_KNOWN
async def test_transition_time_changes_only_with_the_status(muster: Rig, known: Known) -> None:
    (pod,) = await muster.pods("trainer-0")
    long_ago = "2026-01-31T12:00:00Z"
    before = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "old"}
    ready = {"type": "Ready", "status": "False"}
    conditions = [{**each, "lastTransitionTime": long_ago} for each in (before, ready)]
    await muster.kube.patch("Pod", "trainer-0", {"status": {"conditions": conditions}}, part="/status")
    await muster.write([waiting(pod, "new", **known)])
    found = await condition(muster, "trainer-0")
    assert (found["message"], found["lastTransitionTime"]) == ("new", long_ago)
    await muster.write([waiting(pod, "new", status="Unknown", **known)])
    found = await condition(muster, "trainer-0")
    assert found["status"] == "Unknown"
    assert found["lastTransitionTime"] > long_ago
    assert (await condition(muster, "trainer-0", "Ready"))["lastTransitionTime"] == long_ago, (
        "other conditions are kept"
    )


async def test_equal_condition_is_not_written_again(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.write([waiting(pod)])
    before = (await muster.pod("trainer-0"))["metadata"]["resourceVersion"]
    with muster.faults.refuse(WRITES_OF_STATUS, 500):
        assert (await muster.write([waiting(pod)])).written == 1
    assert (await muster.pod("trainer-0"))["metadata"]["resourceVersion"] == before


async def test_long_messages_are_truncated(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.write([waiting(pod, "ü" * 5000)])
    assert (await condition(muster, "trainer-0"))["message"] == "ü" * 1024
    with muster.faults.refuse(WRITES_OF_STATUS, 500):
        assert (await muster.write([waiting(pod, "ü" * 5000)])).written == 1


@AS_KNOWN
async def test_deleted_recreated_and_bound_pods_are_left_alone(muster: Rig, known: Known) -> None:
    gone, other, bound = await muster.pods("gone", "other", "bound")
    await muster.kube.delete("Pod", "gone")
    await muster.kube.delete("Pod", "other")
    await muster.pods("other")
    await muster.bind([bound])
    response = await muster.write([waiting(pod, **known) for pod in (gone, other, bound)])
    assert (response.written, response.gone, list(response.failures)) == (0, 3, [])
    assert (await condition(muster, "bound"))["status"] == "True"
    assert not [each for each in (await muster.pod("other"))["status"].get("conditions", []) if each.get("message")]


@AS_KNOWN
async def test_pod_bound_between_read_and_write_stays_scheduled(muster: Rig, known: Known) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.hold(WRITES_OF_STATUS) as held:
        writing = asyncio.create_task(muster.write([waiting(pod, **known)]))
        await held.until(1)
        await muster.bind([pod])
        held.release()
        response = await writing
    assert response.gone == 1
    assert (await condition(muster, "trainer-0"))["status"] == "True"


@AS_KNOWN
async def test_pod_changed_between_read_and_write_is_read_again(muster: Rig, known: Known) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.hold(WRITES_OF_STATUS) as held:
        writing = asyncio.create_task(muster.write([waiting(pod, **known)]))
        await held.until(1)
        await muster.kube.patch("Pod", "trainer-0", {"metadata": {"labels": {"a": "b"}}})
        held.release()
        assert (await writing).written == 1
    assert (await condition(muster, "trainer-0"))["status"] == "False"


@AS_KNOWN
async def test_conditions_are_retried(muster: Rig, known: Known) -> None:
    pods = await muster.pods(*(f"trainer-{number}" for number in range(10)))
    with (
        muster.faults.cut(WRITES_OF_STATUS, times=5, carried_out=True),
        muster.faults.cut(READS_OF_PODS, times=5),
        muster.faults.refuse(WRITES_OF_STATUS, 429, times=5, headers={"Retry-After": "0"}),
    ):
        response = await muster.write([waiting(pod, **known) for pod in pods])
    assert response.written == 10


async def test_a_pod_that_the_api_servers_cache_does_not_have_yet_gets_its_condition(muster: Rig) -> None:
    """Pods are read from the cache first, and otherwise as they are."""
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.refuse(READS_OF_PODS, 404, times=1) as missing, muster.faults.seen(READS_OF_PODS) as reads:
        assert (await muster.write([waiting(pod)])).written == 1
        await missing.struck(1)
    assert len(reads) == 1
    assert (await condition(muster, "trainer-0"))["status"] == "False"


async def test_the_first_condition_of_a_pod_is_written_without_a_read(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.seen(READS_OF_PODS) as reads:
        assert (await muster.write([waiting(pod, nominated_node="n1", first=True)])).written == 1
    assert len(reads) == 0
    assert await nominated(muster, "trainer-0") == "n1"
    assert (await condition(muster, "trainer-0"))["status"] == "False"


async def test_another_reason_and_message_are_written_without_a_read(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.write([waiting(pod, first=True)])
    before = await condition(muster, "trainer-0")
    with muster.faults.seen(READS_OF_PODS) as reads, muster.faults.seen(WRITES_OF_STATUS) as writes:
        changed = waiting(pod, "1/20 nodes are free", reason="CapacityHeld", nominated_node="n1", changed=True)
        assert (await muster.write([changed])).written == 1
    assert (len(reads), len(writes)) == (0, 1)
    after = await condition(muster, "trainer-0")
    assert after == {**before, "reason": "CapacityHeld", "message": "1/20 nodes are free"}
    assert await nominated(muster, "trainer-0") == "n1"
    await muster.write([waiting(pod, changed=True)])
    assert await nominated(muster, "trainer-0") is None


@AS_KNOWN
async def test_failures_are_reported_up_to_a_limit(muster: Rig, known: Known) -> None:
    pods = await muster.pods(*(f"trainer-{number:02}" for number in range(12)))
    bad = waiting(pods[0], status="Maybe", **known)
    with muster.faults.refuse(WRITES_OF_STATUS, 403):
        response = await muster.write([bad, *(waiting(pod, **known) for pod in pods)])
    assert (response.written, len(response.failures)) == (0, 10)
    assert "status 'Maybe' is not True, False or Unknown" in response.failures[0]
    assert response.failures[1].startswith("condition PodScheduled of pod ml/trainer-")
    assert response.failures[1].endswith("403: made to fail")


async def test_deadline_bounds_writes(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.cut(READS_OF_PODS), muster.faults.cut(NEW_EVENTS):
        response = await muster.write([waiting(pod)], [event(pod)], seconds=5)
    assert len(response.failures) == 2
    assert (await muster.write([waiting(pod)], [event(pod)])).written == 2
    assert len(await muster.events("trainer-0")) == 1, "the failed event is not counted as written"


# -- events


async def test_i10_kubectl_describe_shows_the_event(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    assert (await muster.write(events=[event(pod)])).written == 1
    (found,) = await muster.events("trainer-0")
    assert (found["type"], found["reason"], found["message"]) == ("Warning", "FailedScheduling", "0/20 nodes are free")
    assert found["eventTime"], "its age in kubectl"
    assert (found["reportingComponent"], found["reportingInstance"]) == ("muster", "binding-0")
    assert found["action"] == "Scheduling"


async def counted(muster: Rig, pod: str, count: int) -> list[dict[str, Any]]:
    """Wait until an event of the pod has that count; returns the pod's events."""

    async def with_count() -> list[dict[str, Any]]:
        found = await muster.events(pod)
        return found if any((each.get("series") or {}).get("count") == count for each in found) else []

    return await eventually(with_count, f"an event of {pod} with count {count}", seconds=20)


async def test_repeated_event_is_counted_in_few_writes(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.hold(COUNTS) as held:
        assert (await muster.write(events=[event(pod)] * 30)).written == 30
        assert (await muster.write(events=[event(pod)] * 12)).written == 12
        await held.until(1)
        await muster.events("trainer-0")
        assert len(held.paths) + muster.service.waiting <= 2
        held.release()
        (found,) = await counted(muster, "trainer-0", 42)
    assert found["series"]["lastObservedTime"] >= found["eventTime"]


async def test_different_note_is_a_new_event(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.write(events=[event(pod, "one"), event(pod, "two"), event(pod, "one")])
    assert {each["message"] for each in await counted(muster, "trainer-0", 2)} == {"one", "two"}


async def test_count_of_an_expired_event_creates_it_again(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.hold(COUNTS) as held:
        await muster.write(events=[event(pod), event(pod)])
        await held.until(1)
        (first,) = await muster.events("trainer-0")
        await muster.delete(f"/api/v1/namespaces/ml/events/{first['metadata']['name']}")
        held.release()
        (second,) = await counted(muster, "trainer-0", 2)
    assert second["message"] == first["message"]


async def test_flood_of_events_about_one_object_is_suppressed_and_logged(muster: Rig) -> None:
    noisy, quiet = await muster.pods("noisy", "quiet")
    with capture_logs() as logs:
        flood = [event(noisy, f"note {number}") for number in range(100)]
        response = await muster.write(events=[*flood, event(quiet)])
    assert (response.written, response.suppressed) == (event_series.BURST + 1, 100 - event_series.BURST)
    assert len(await muster.events("noisy")) == event_series.BURST
    assert len(await muster.events("quiet")) == 1
    (line,) = (line for line in logs if line["event"] == "event_suppression_started")
    assert (line["object"], line["log_level"]) == ("ml/noisy", "warning")


async def test_event_with_a_lost_answer_is_created_once(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    with muster.faults.cut(NEW_EVENTS, times=1, carried_out=True):
        assert (await muster.write(events=[event(pod)])).written == 1
    assert len(await muster.events("trainer-0")) == 1


async def test_notes_are_truncated_to_the_limit_of_the_api(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    assert (await muster.write(events=[event(pod, "ü" * 2000, reason="R" * 300)])).written == 1
    (found,) = await muster.events("trainer-0")
    assert found["message"] == "ü" * 512
    assert found["reason"] == "R" * 128


async def test_event_about_a_node_is_in_the_default_namespace(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    about = event(pod)
    about.regarding.kind, about.regarding.namespace, about.regarding.name = "Node", "", "node-0"
    assert (await muster.write(events=[about])).written == 1
    found = await muster.get("/api/v1/namespaces/default/events", fieldSelector="involvedObject.kind=Node")
    assert [each["involvedObject"]["name"] for each in found["items"]] == ["node-0"]


async def test_event_in_a_missing_namespace_counts_as_gone(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    about = event(pod)
    about.regarding.namespace = "nowhere"
    response = await muster.write(events=[about])
    assert (response.gone, list(response.failures)) == (1, [])


async def test_pending_counts_are_written_at_shutdown(muster: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "COUNT_INTERVAL_SECONDS", 3600.0)
    (pod,) = await muster.pods("trainer-0")
    await muster.write(events=[event(pod)])
    await muster.write(events=[event(pod)] * 2)
    assert not (await muster.events("trainer-0"))[0].get("series")
    await muster.service.stop()
    (found,) = await muster.events("trainer-0")
    assert found["series"]["count"] == 3


async def test_binds_precede_conditions(muster: Rig) -> None:
    busy = await muster.pods(*(f"busy-{number}" for number in range(8)))
    waiters = await muster.pods(*(f"waiter-{number}" for number in range(40)))
    urgent = await muster.pods(*(f"urgent-{number}" for number in range(8)))
    with muster.faults.hold(Requests("POST", "/busy-[^/]+/binding")) as held, muster.faults.hold(READS_OF_PODS) as read:
        first = asyncio.create_task(muster.bind(busy))
        await held.until(8)
        writing = asyncio.create_task(muster.write([waiting(pod) for pod in waiters]))
        second = asyncio.create_task(muster.bind(urgent))
        await muster.until_waiting(48)
        held.release()
        await asyncio.gather(first, second)
        assert len(read.paths) <= 8
        read.release()
        assert (await writing).written == 40


# -- nominated nodes


async def nominated(muster: Rig, pod: str) -> str | None:
    return (await muster.pod(pod))["status"].get("nominatedNodeName")  # type: ignore[no-any-return]


@AS_KNOWN
async def test_the_nominated_node_is_written_and_removed_with_the_condition(muster: Rig, known: Known) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    held = [waiting(pod, "waits", reason="CapacityHeld", nominated_node="n1", **known) for pod in pods]
    assert (await muster.write(held)).written == 2
    assert await nominated(muster, "trainer-1") == "n1"
    assert (await condition(muster, "trainer-1"))["reason"] == "CapacityHeld"
    moved = [
        waiting(pods[0], "waits", reason="CapacityHeld", nominated_node="n2", **known),
        waiting(pods[1], "waits", **known),
    ]
    assert (await muster.write(moved)).written == 2
    assert (await nominated(muster, "trainer-0"), await nominated(muster, "trainer-1")) == ("n2", None)
    assert (await condition(muster, "trainer-1"))["reason"] == "Unschedulable"


async def test_an_unconfirmed_nominated_node_is_removed_if_the_condition_is_equal(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    await muster.write([waiting(pod)])
    await muster.kube.patch("Pod", "trainer-0", {"status": {"nominatedNodeName": "gone"}}, part="/status")
    await muster.write([waiting(pod)])
    assert await nominated(muster, "trainer-0") is None
    before = (await muster.pod("trainer-0"))["metadata"]["resourceVersion"]
    with muster.faults.refuse(WRITES_OF_STATUS, 500):
        assert (await muster.write([waiting(pod)])).written == 1
    assert (await muster.pod("trainer-0"))["metadata"]["resourceVersion"] == before


async def test_a_node_name_that_is_not_valid_is_refused(muster: Rig) -> None:
    (pod,) = await muster.pods("trainer-0")
    response = await muster.write([waiting(pod, nominated_node="no/node")])
    assert "nominated node 'no/node' is not a valid node name" in response.failures[0]
    assert await nominated(muster, "trainer-0") is None


async def test_a_bound_pod_gets_no_nominated_node_and_keeps_none(muster: Rig) -> None:
    before, after = await muster.pods("before", "after")
    await muster.write([waiting(before, nominated_node="n1")])
    await muster.bind([before, after])
    assert (await muster.write([waiting(after, nominated_node="n1")])).gone == 1
    assert (await nominated(muster, "before"), await nominated(muster, "after")) == (None, None)
