"""QueueJobs on a real API server; tests control the phases of the pods."""

from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from builders.e2e.faults import EVERYTHING, Requests
from builders.gangs.queue_jobs import queue_job, template
from builders.kube.client import ApiClient, Reply, node
from builders.lifecycle.replicas import LifecycleCluster

JOBS = "/apis/arbitrator.incubator.k8s.io/v1alpha1/namespaces/default/queuejobs"
SPECS = "/apis/arbitrator.incubator.k8s.io/v1alpha1/namespaces/default/schedulingspecs"
PODS = "/api/v1/namespaces/default/pods"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

Object = dict[str, Any]


@pytest.fixture(params=["our CRD"])
async def ground(rig: LifecycleCluster, request: pytest.FixtureRequest) -> LifecycleCluster:
    """An API server with the kinds and a node, without a replica of lifecycle."""
    await rig.install("arbitrator.incubator.k8s.io_schedulingspecs.yaml")
    crd = rig.manifest("arbitrator.incubator.k8s.io_queuejobs.yaml")
    if request.param == "a CRD that knows no field of ours":
        [version] = crd["spec"]["versions"]
        version |= {"subresources": {}, "additionalPrinterColumns": []}
        fields = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        for name in fields.keys() - {"running", "succeeded", "failed", "minAvailable"}:
            del fields[name]
    await rig.create_crd(crd)
    await rig.api.created("/api/v1/nodes", node("node-1"))
    for name, value in (("high", 100), ("low", 1)):
        written = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await rig.api.created(CLASSES, {**written, "value": value})
    return rig


@pytest.fixture
async def api(ground: LifecycleCluster) -> AsyncIterator[ApiClient]:
    async with ground.replica():
        yield ground.api


async def pods(api: ApiClient) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in (await api.get(PODS)).body["items"]}


async def uids(api: ApiClient) -> dict[str, str]:
    return {name: each["metadata"]["uid"] for name, each in (await pods(api)).items()}


async def until_pods(api: ApiClient, *names: str, but: Collection[str] = ()) -> dict[str, str]:
    """Waits until exactly these pods exist with none of the given uids; returns their uids."""

    def holds(reply: Reply) -> bool:
        there = {each["metadata"]["name"]: each["metadata"]["uid"] for each in reply.body["items"]}
        return set(there) == set(names) and not set(but) & set(there.values())

    await api.until(PODS, holds)
    return await uids(api)


async def become(api: ApiClient, phase: str, *names: str) -> None:
    """Sets the pods' phase as the kubelet does, after binding pods without a node."""
    for name in names:
        if not (await api.get(f"{PODS}/{name}")).body["spec"].get("nodeName"):
            assert (await api.bind(name, "node-1")).status == 201
        assert (await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})).status == 200


async def until_status(api: ApiClient, name: str = "train", **fields: Any) -> Object:
    def holds(reply: Reply) -> bool:
        status = reply.body.get("status", {})
        return all(status.get(key) == value for key, value in fields.items())

    return (await api.until(f"{JOBS}/{name}", holds)).body["status"]  # type: ignore[no-any-return]


def pods_created_condition(reply: Reply) -> Object:
    """Returns the condition PodsCreated once it has the reason."""
    conditions = reply.body.get("status", {}).get("conditions") or [{}]
    return conditions[0]  # type: ignore[no-any-return]


async def until_created(api: ApiClient, reason: str, name: str = "train") -> Object:
    return pods_created_condition(
        await api.until(f"{JOBS}/{name}", lambda reply: pods_created_condition(reply).get("reason") == reason)
    )


async def until_event(api: ApiClient, reason: str) -> Object:
    def found(reply: Reply) -> list[Object]:
        return [each for each in reply.body["items"] if each["reason"] == reason]

    return found(await api.until(EVENTS, lambda reply: bool(found(reply))))[0]


NAMES = ("train-0-0", "train-0-1", "train-0-2", "train-0-3")


async def running(api: ApiClient, minimum: int = 3) -> dict[str, str]:
    """Creates a job of four running pods; returns their uids."""
    await api.created(JOBS, queue_job("train", (4, template()), minimum=minimum))
    before = await until_pods(api, *NAMES)
    await become(api, "Running", *NAMES)
    await until_status(api, running=4, minAvailable=minimum)
    return before


async def test_a_job_gets_its_pods_and_its_spec(api: ApiClient) -> None:
    scheduling = {"nodeSelector": {"disk": "ssd"}, "priorityClassName": "high"}
    chief, worker = template(labels={"role": "chief"}, schedulerName="other"), template(priorityClassName="low")
    await api.created(JOBS, queue_job("train", (1, chief), (2, worker), minimum=2, scheduling=scheduling))
    await until_pods(api, "train-0-0", "train-1-0", "train-1-1")
    there = await pods(api)
    chief_pod, worker_pod = there["train-0-0"], there["train-1-0"]
    job = (await api.get(f"{JOBS}/train")).body["metadata"]
    owner: Object = {"apiVersion": "arbitrator.incubator.k8s.io/v1alpha1", "kind": "QueueJob", "name": "train"}
    owner |= {"uid": job["uid"], "controller": True, "blockOwnerDeletion": True}
    assert chief_pod["metadata"]["ownerReferences"] == worker_pod["metadata"]["ownerReferences"] == [owner]
    assert chief_pod["metadata"]["labels"] == {"role": "chief", "muster.dev/queue-job": "train"}
    assert [each["spec"]["schedulerName"] for each in (chief_pod, worker_pod)] == ["other", "muster"]
    assert [each["spec"]["priority"] for each in (chief_pod, worker_pod)] == [100, 1]
    spec = (await api.until(f"{SPECS}/train", lambda reply: reply.status == 200)).body
    assert spec["spec"] == {"minAvailable": 2, **scheduling}
    assert spec["metadata"]["ownerReferences"] == [owner]
    status = await until_status(api, pending=3, running=0, minAvailable=2, incarnation=1)
    assert status["failed"] == 0
    assert (await until_created(api, "AllCreated"))["status"] == "True"


async def test_the_scheduling_spec_is_updated_and_recreated(api: ApiClient) -> None:
    written = queue_job("train", (1, template()), minimum=1, scheduling={"nodeSelector": {"disk": "ssd"}})
    await api.created(JOBS, written)
    await api.until(f"{SPECS}/train", lambda reply: reply.status == 200)
    patch = {"spec": {"schedulingSpec": {"minAvailable": None, "nodeSelector": {"disk": None, "zone": "a"}}}}
    assert (await api.patch(f"{JOBS}/train", patch)).status == 200
    await api.until(f"{SPECS}/train", lambda reply: reply.body["spec"] == {"nodeSelector": {"zone": "a"}})
    await api.delete(f"{SPECS}/train")
    await api.until(f"{SPECS}/train", lambda reply: reply.status == 200)


async def test_a_job_that_is_deleted_takes_everything_with_it(api: ApiClient) -> None:
    await running(api)
    await api.delete(f"{JOBS}/train")
    await api.until(PODS, lambda reply: not reply.body["items"])
    await api.until_gone(f"{SPECS}/train")


async def test_a_failed_pod_is_replaced_while_the_others_are_enough(api: ApiClient) -> None:
    before = await running(api)
    await become(api, "Failed", "train-0-2")
    after = await until_pods(api, *NAMES, but={before["train-0-2"]})
    assert {name for name in after if after[name] != before[name]} == {"train-0-2"}
    await until_status(api, running=3, failed=1, incarnation=1, pending=1)
    assert (await until_event(api, "Replacing"))["type"] == "Warning"


async def test_below_its_minimum_the_whole_job_is_recreated(api: ApiClient) -> None:
    before = await running(api)
    await until_status(api, started=True)
    await become(api, "Succeeded", "train-0-0")
    await become(api, "Failed", "train-0-1", "train-0-2")
    after = await until_pods(api, *NAMES, but=set(before.values()))
    await until_status(api, pending=4, running=0, succeeded=0, incarnation=2)
    event = await until_event(api, "Restarting")
    assert event["note"] == "2 pods are left of the 3 that are needed: all are recreated"
    await become(api, "Running", *NAMES)
    await until_status(api, running=4, started=True)
    assert await uids(api) == after


@pytest.mark.parametrize("ground", ["a CRD that knows no field of ours"], indirect=True)
async def test_on_a_foreign_crd_a_job_is_recreated_too(api: ApiClient) -> None:
    before = await running(api)
    await become(api, "Failed", "train-0-1")
    after = await until_pods(api, *NAMES, but={before["train-0-1"]})
    await become(api, "Running", "train-0-1")
    await become(api, "Failed", "train-0-1", "train-0-2")
    await until_pods(api, *NAMES, but={*before.values(), *after.values()})
    await until_status(api, running=0, failed=3)


async def test_a_job_without_its_record_continues_with_its_pods(ground: LifecycleCluster) -> None:
    """The record is lost when a manifest without annotations replaces the object, or in a restore."""
    api = ground.api
    async with ground.replica():
        before = await running(api)
        await become(api, "Failed", "train-0-1", "train-0-2")
        after = await until_pods(api, *NAMES, but=before.values())
        await until_status(api, pending=4)
    gone = {"metadata": {"annotations": {"muster.dev/queue-job-record": None}}, "status": {}}
    assert (await api.patch(f"{JOBS}/train", gone)).status == 200
    async with ground.replica("two"):
        await become(api, "Running", *NAMES)
        await until_status(api, running=4, incarnation=2, started=True)
        assert await uids(api) == after


async def test_a_template_change_recreates_the_job(api: ApiClient) -> None:
    before = await running(api)
    changed = queue_job("train", (4, template(cpu="2")), minimum=3)["spec"]["taskSpecs"]
    assert (await api.patch(f"{JOBS}/train", {"spec": {"taskSpecs": changed}})).status == 200
    await until_pods(api, *NAMES, but=set(before.values()))
    for each in (await pods(api)).values():
        assert each["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}


async def test_a_job_whose_pods_succeed_is_completed(api: ApiClient) -> None:
    before = await running(api)
    await become(api, "Succeeded", *NAMES)
    await until_status(api, succeeded=4, completed=True)
    await api.delete(f"{PODS}/train-0-0")
    await until_event(api, "Completed")
    assert (await uids(api)).items() <= before.items()


async def test_a_short_quota_hits_the_lowest_job_first(ground: LifecycleCluster) -> None:
    api = ground.api
    await quota(api, {"pods": "4"})
    await api.created(JOBS, queue_job("a-low", (4, template()), minimum=2, scheduling={"priorityClassName": "low"}))
    await api.created(JOBS, queue_job("b-high", (3, template()), minimum=3, scheduling={"priorityClassName": "high"}))
    async with ground.replica():
        await until_pods(api, "b-high-0-0", "b-high-0-1", "b-high-0-2", "a-low-0-0")
        condition = await until_created(api, "ExceededQuota", "a-low")
        assert condition["status"] == "False"
        assert "exceeded quota: pods" in condition["message"]
        assert (await until_event(api, "ExceededQuota"))["regarding"]["name"] == "a-low"
        assert (await until_created(api, "AllCreated", "b-high"))["status"] == "True"
        assert (await api.patch(f"{QUOTAS}/pods", {"spec": {"hard": {"pods": "7"}}})).status == 200
        await until_created(api, "AllCreated", "a-low")
        assert len(await pods(api)) == 7


async def test_a_pod_larger_than_the_quota_does_not_block_other_jobs(ground: LifecycleCluster) -> None:
    api = ground.api
    await quota(api, {"requests.cpu": "2"})
    await api.created(JOBS, queue_job("a-huge", (1, template(cpu="4")), scheduling={"priorityClassName": "high"}))
    await api.created(JOBS, queue_job("b-small", (1, template(cpu="1"))))
    async with ground.replica():
        await until_pods(api, "b-small-0-0")
        assert "requested: requests.cpu=4" in (await until_created(api, "ExceededQuota", "a-huge"))["message"]


async def test_a_pod_without_limits_that_a_quota_needs_does_not_block_others(
    ground: LifecycleCluster,
) -> None:
    api = ground.api
    await quota(api, {"limits.cpu": "4"})
    small = template(cpu="1")
    small["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1"}
    await api.created(JOBS, queue_job("a-silent", (1, template()), scheduling={"priorityClassName": "high"}))
    await api.created(JOBS, queue_job("b-small", (1, small)))
    async with ground.replica():
        await until_pods(api, "b-small-0-0")
        assert "must specify limits.cpu" in (await until_created(api, "Rejected", "a-silent"))["message"]


async def quota(api: ApiClient, hard: dict[str, str]) -> None:
    """Creates a quota and waits until it is enforced."""
    written = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": {"hard": hard}}
    await api.created(QUOTAS, written)
    await api.until(f"{QUOTAS}/pods", lambda reply: bool(reply.body.get("status", {}).get("used")))


async def test_pods_rejected_by_the_api_server_are_reported_on_the_job(api: ApiClient) -> None:
    await api.created(JOBS, queue_job("train", (1, template(restartPolicy="Perhaps")), minimum=1))
    condition = await until_created(api, "Rejected")
    assert "restartPolicy" in condition["message"]
    assert (await until_event(api, "Rejected"))["regarding"]["kind"] == "QueueJob"


async def test_an_invalid_spec_is_reported_on_the_job(api: ApiClient) -> None:
    selector = {"matchLabels": {"app": "b"}}
    await api.created(JOBS, queue_job("train", (1, template(labels={"app": "a"})), minimum=1, selector=selector))
    condition = await until_created(api, "InvalidSpec")
    assert condition["message"] == (
        'spec.taskSpecs[0].template.metadata.labels has "app": "a", but the selector requires "b": '
        "give them the same value"
    )
    await until_event(api, "InvalidSpec")
    assert (await api.patch(f"{JOBS}/train", {"spec": {"selector": {"matchLabels": {"app": "a"}}}})).status == 200
    await until_created(api, "AllCreated")


@pytest.mark.parametrize("path", [PODS, SPECS])
async def test_name_conflicts_are_reported_and_left_alone(api: ApiClient, path: str) -> None:
    strange: Object = {"metadata": {"name": "train" if path == SPECS else "train-0-0"}, "spec": {}}
    if path == PODS:
        strange["spec"] = template()["spec"]
    uid = (await api.created(path, strange))["metadata"]["uid"]
    await api.created(JOBS, queue_job("train", (1, template()), minimum=1))
    condition = await until_created(api, "Conflict")
    assert condition["message"].endswith("exists and is not this job's: delete it, or rename the job")
    name = strange["metadata"]["name"]
    assert (await api.get(f"{path}/{name}")).body["metadata"]["uid"] == uid
    await api.delete(f"{path}/{name}")
    await until_created(api, "AllCreated")


async def test_a_job_of_the_same_name_waits_for_the_former_ones_pods_to_go(api: ApiClient) -> None:
    written = queue_job("train", (2, template()), minimum=2)
    await api.created(JOBS, written)
    former = await until_pods(api, *NAMES[:2])
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    assert (await api.patch(f"{PODS}/train-0-0", held)).status == 200
    await api.delete(f"{JOBS}/train")
    await until_pods(api, "train-0-0")
    await api.created(JOBS, written)
    condition = await until_created(api, "PreviousJobTerminating")
    assert condition["message"] == 'pod "train-0-0" of an earlier job of this name is still being deleted'
    assert (await api.patch(f"{PODS}/train-0-0", {"metadata": {"finalizers": None}})).status == 200
    await until_pods(api, *NAMES[:2], but=former.values())
    await until_created(api, "AllCreated")


async def test_another_replica_continues_where_the_first_stopped(ground: LifecycleCluster) -> None:
    """The first replica decides to recreate the whole job, deletes two pods and is stopped."""
    api = ground.api
    async with ground.replica("one", faulty=True):
        before = await running(api)
        with ground.faults.hold(Requests("DELETE", "/pods/[-a-z0-9]+"), let_pass=2) as held:
            await become(api, "Failed", "train-0-1", "train-0-2")
            await held.until(1)
            with ground.faults.cut(EVERYTHING):
                async with ground.replica("two"):
                    await until_pods(api, *NAMES, but=set(before.values()))
                    await until_status(api, incarnation=2, failed=2, pending=4)


async def test_answers_that_get_lost_do_no_harm(ground: LifecycleCluster) -> None:
    api, faults = ground.api, ground.faults
    async with ground.replica("one", faulty=True):
        with (
            faults.cut(Requests("POST", "/pods"), times=2, carried_out=True) as created,
            faults.cut(Requests("PATCH", "/queuejobs/train/status"), times=2, carried_out=True) as reported,
        ):
            await running(api)
            await created.struck(2)
            await reported.struck(2)
        await become(api, "Failed", "train-0-1")
        await until_status(api, running=3, pending=1, failed=1, incarnation=1)
        assert len(await pods(api)) == 4
