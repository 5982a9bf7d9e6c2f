"""Subscribers are told why a Job cannot create the missing pods of a gang: cluster-state lists events on demand."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from builders.clusterstate.history import pod_object
from builders.clusterstate.mirror import Mirror, mirroring
from builders.clusterstate.service import replica
from builders.kube.calls import KubeCalls
from builders.wait import eventually
from muster.clusterstate.event_passes import Pace
from muster.config.settings import KubeSettings

QUICK = Pace(request=0.02, creation=0.05, pause=0.2, news=0.1)
GANG = "koordinator/ml/g"
EVENTS = "/api/v1/namespaces/ml/events"
MARKS = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "4"}


@pytest.fixture
async def mirror(config: KubeSettings, kube: KubeCalls) -> AsyncIterator[Mirror]:
    async with replica(config, event_pace=QUICK) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: True)
        yield mirror


def job(parallelism: int = 4) -> dict[str, Any]:
    pod = pod_object("p", annotations=MARKS, restartPolicy="Never")
    template = {"metadata": {"annotations": MARKS}, "spec": pod["spec"]}
    return {"metadata": {"name": "train"}, "spec": {"parallelism": parallelism, "template": template}}


async def quota(kube: KubeCalls, pods: int) -> None:
    await kube.create("ResourceQuota", {"metadata": {"name": "team"}, "spec": {"hard": {"pods": str(pods)}}})


async def failed_to_create(kube: KubeCalls, uid: str, message: str, name: str = "train") -> None:
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ml", "name": name, "uid": uid}
    event = {"involvedObject": about, "type": "Warning", "reason": "FailedCreate", "message": message}
    times = {"firstTimestamp": "2100-01-01T00:00:00Z", "lastTimestamp": "2100-01-01T00:00:00Z"}
    await kube.create("Event", {"metadata": {"name": f"{name}.{uid}"}, **event, **times})


def reported(mirror: Mirror) -> str:
    return mirror.gangs[GANG].creation_failure if GANG in mirror.gangs else ""


async def test_a_quota_that_refuses_the_missing_pod_is_named_until_it_is_created(
    kube: KubeCalls, mirror: Mirror
) -> None:
    await quota(kube, 3)
    await kube.create("Job", job())
    await mirror.until(lambda: len(mirror.pods) == 3 and reported(mirror))
    assert reported(mirror) == "Job train: exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3"
    await kube.patch("ResourceQuota", "team", {"spec": {"hard": {"pods": "9"}}})
    await mirror.until(lambda: len(mirror.pods) == 4 and not reported(mirror))
    assert (mirror.snapshots, mirror.disconnected) == (1, 0)


def pod(name: str) -> dict[str, Any]:
    """A pod of a controller whose kind is not served, so that no garbage collector misses it."""
    return pod_object(name, annotations=MARKS, owner="train", owner_kind="example.com/v1 Flow")


async def test_it_is_taken_back_when_the_event_is_gone(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("Pod", pod("p"))
    await failed_to_create(kube, "train", "Error creating: no")
    await failed_to_create(kube, "other", "Error creating: another", name="other")
    await mirror.until(lambda: reported(mirror) == "Job train: no")
    await kube.delete("Event", "train.train")
    await mirror.until(lambda: not reported(mirror))


async def test_a_list_that_fails_is_repeated(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.fault(method="GET", path_prefix=EVENTS, status=500, count=1)
    await kube.create("Pod", pod("p"))
    await failed_to_create(kube, "train", "Error creating: no")
    async with replica(config, event_pace=QUICK) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: reported(mirror) == "Job train: no")


async def test_without_permission_gangs_are_said_to_be_incomplete(
    config: KubeSettings, kube: KubeCalls, capsys: pytest.CaptureFixture[str]
) -> None:
    await kube.fault(method="GET", path_prefix=EVENTS, status=403, count=1)
    await kube.create("Pod", pod("p"))
    await failed_to_create(kube, "train", "Error creating: no")
    async with replica(config, event_pace=QUICK) as (_, port), mirroring(port) as mirror:
        logged = ""

        def is_logged() -> bool:
            nonlocal logged
            logged += capsys.readouterr().out
            return "events_forbidden" in logged

        await eventually(is_logged, "the permission is said to be missing")
        await kube.create("Pod", pod("q"))
        await mirror.until(lambda: len(mirror.pods) == 2)
        assert reported(mirror) == ""
