"""The cache of QueueJobs keeps the newest revision, whatever the order of informer events and responses."""

from typing import Any

import msgspec
import pytest

from builders.gangs.queue_jobs import queue_job, template
from muster.kube.object_changes import Removed
from muster.kube.objects import Pod, PriorityClass, decode_pod, decode_pod_group, decode_priority_class
from muster.lifecycle.queue_jobs.cache import QueueJobCache
from muster.lifecycle.queue_jobs.job import QueueJob, decode_queue_job
from muster.lifecycle.queue_jobs.plan import JobPod

OWNER = {"apiVersion": "arbitrator.incubator.k8s.io/v1alpha1", "kind": "QueueJob", "name": "train", "uid": "job"}


def job(uid: str = "job", revision: int = 1, **scheduling: Any) -> QueueJob:
    written = queue_job("train", (2, template()), scheduling=scheduling)
    written["metadata"] |= {"uid": uid, "resourceVersion": str(revision)}
    return decode_queue_job(msgspec.json.encode(written))


def pod(revision: int, phase: str = "Pending", *, owned: bool = True) -> Pod:
    metadata: dict[str, Any] = {"name": "train-0-0", "namespace": "default", "uid": "pod"}
    metadata |= {"resourceVersion": str(revision), "ownerReferences": [{**OWNER, "controller": owned}]}
    return decode_pod(msgspec.json.encode({"metadata": metadata, "status": {"phase": phase}}))


def spec(uid: str = "spec", owner: str = "job") -> Any:
    metadata = {"name": "train", "namespace": "default", "uid": uid, "resourceVersion": "1"}
    reference = {**OWNER, "uid": owner, "controller": True}
    return decode_pod_group(
        msgspec.json.encode({"metadata": {**metadata, "ownerReferences": [reference]}, "spec": {"minAvailable": 2}})
    )


@pytest.fixture
def store() -> QueueJobCache:
    store = QueueJobCache()
    store.update_job(job())
    return store


def pods(store: QueueJobCache) -> list[JobPod]:
    return store.pods(store.jobs["job"])


def test_an_outdated_response_changes_nothing(store: QueueJobCache) -> None:
    assert store.update_pod(pod(5, "Running")) == ["job"]
    assert store.update_pod(pod(4)) == []
    assert [each.phase for each in pods(store)] == ["Running"]
    assert store.update_job(job(revision=3)) == ["job"]
    assert store.update_job(job(revision=2)) == []


def test_a_response_after_the_deletion_restores_nothing(store: QueueJobCache) -> None:
    store.update_pod(pod(5))
    assert store.update_pod(Removed("pod", 6)) == ["job"]
    assert store.update_pod(pod(5)) == []
    assert store.update_job(Removed("job", 7)) == ["job"]
    assert store.update_job(job(revision=8)) == []
    assert (store.jobs, store.namespaces) == ({}, [])


def test_a_deleted_pod_is_deleting_until_it_is_gone(store: QueueJobCache) -> None:
    store.update_pod(pod(5))
    store.mark_deleted(store.jobs["job"], pods(store)[0])
    assert store.update_pod(pod(6, "Running")) == ["job"]
    assert [each.deleting for each in pods(store)] == [True]


def test_an_orphaned_pod_leaves_the_job(store: QueueJobCache) -> None:
    store.update_pod(pod(5))
    assert store.update_pod(pod(6, owned=False)) == ["job"]
    assert pods(store) == []


def test_a_spec_is_found_by_its_jobs_name(store: QueueJobCache) -> None:
    assert store.update_spec(spec()) == ["job"]
    found = store.spec(store.jobs["job"])
    assert found is not None
    assert (found.job, found.content) == ("job", {"minAvailable": 2})
    assert store.update_spec(Removed("spec", 9)) == ["job"]
    assert store.spec(store.jobs["job"]) is None


def test_a_recreated_spec_survives_the_deletion_of_the_old_one(store: QueueJobCache) -> None:
    store.update_spec(spec("old", owner="former-job"))
    store.update_spec(spec("new"))
    assert store.update_spec(Removed("old", 9)) == []
    found = store.spec(store.jobs["job"])
    assert found is not None
    assert found.uid == "new"


def test_a_job_of_the_same_name_replaces_a_deleted_one(store: QueueJobCache) -> None:
    store.update_job(job("again", revision=9))
    store.update_job(Removed("job", 10))
    assert [each.uid for each in store.in_namespace("default")] == ["again"]


def test_a_priority_class_changes_only_jobs_that_name_it(store: QueueJobCache) -> None:
    store.update_job(job("urgent", priorityClassName="high"))
    high: PriorityClass = decode_priority_class(b'{"metadata": {"name": "high", "uid": "c"}, "value": 5}')
    store.update_priority_class(high)
    assert list(store.reprioritise()) == [["urgent"]]
    assert store.jobs["urgent"].priority == 5
    store.update_priority_class(Removed("c", 3))
    assert list(store.reprioritise()) == [["urgent"]]
    assert store.jobs["urgent"].priority == 0


def test_i12_few_jobs_are_read_again_in_one_piece_and_deleted_ones_are_not() -> None:
    store = QueueJobCache()
    for number in range(120):
        store.update_job(job(f"uid-{number}"))
    slices = store.reprioritise()
    assert next(slices) == []
    store.update_job(Removed("uid-119"))
    assert len([next(slices), *slices]) == 2
    assert len(store.jobs) == 119
