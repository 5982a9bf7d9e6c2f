"""The status of Volcano's PodGroups on a real API server, beside Volcano's scheduler and instead of it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from builders.gangs.volcano_jobs import JOB_KIND, group_name, pod_group_of, pods_of, volcano_job
from builders.kube.client import ApiClient, node
from builders.lifecycle.replicas import LifecycleCluster

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
KUBE_BATCH = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
SCHEDULERS = "/api/v1/namespaces/volcano-system/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases"

Object = dict[str, Any]


@pytest.fixture
async def api(rig: LifecycleCluster) -> AsyncIterator[ApiClient]:
    """The API with Volcano's and kube-batch's kinds, and a node; no replica runs yet."""
    for manifest in ("scheduling.incubator.k8s.io_podgroups.yaml", "scheduling.volcano.sh_podgroups.yaml"):
        await rig.install(manifest)
    await rig.create_crd(JOB_KIND)
    await rig.api.created("/api/v1/nodes", node("node-1"))
    yield rig.api


async def create_job(api: ApiClient, name: str, scheduler: str = "muster") -> tuple[Object, str]:
    """Creates a Job of a master and two workers, and its PodGroup; returns the Job and the PodGroup's path."""
    job = await api.created(JOBS, volcano_job(name, "default", scheduler, {}, master=1, worker=2))
    await api.created(GROUPS, pod_group_of(job))
    return job, f"{GROUPS}/{group_name(job)}"


async def create_pods(api: ApiClient, job: Object) -> list[str]:
    for pod in pods_of(job):
        await api.created(PODS, pod)
    return [pod["metadata"]["name"] for pod in pods_of(job)]


async def become(api: ApiClient, phase: str, *names: str) -> None:
    """Sets the pods' phase as the kubelet does, after binding pods without a node."""
    for name in names:
        if not (await api.get(f"{PODS}/{name}")).body["spec"].get("nodeName"):
            assert (await api.bind(name, "node-1")).status == 201
        reply = await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})
        assert reply.status == 200, reply.body


async def until_status(api: ApiClient, path: str, **fields: Any) -> Object:
    """Waits until the group's status has these fields; returns the status."""

    def holds(reply: Any) -> bool:
        status = reply.body.get("status", {})
        return all(status.get(name) == value for name, value in fields.items())

    return (await api.until(path, holds)).body["status"]  # type: ignore[no-any-return]


async def status_of(api: ApiClient, path: str) -> Object:
    return (await api.get(path)).body.get("status", {})  # type: ignore[no-any-return]


def lease(renewed: str, seconds: int) -> Object:
    spec = {"holderIdentity": "vc-scheduler-1", "leaseDurationSeconds": seconds, "renewTime": renewed}
    return {"metadata": {"name": "volcano"}, "spec": spec}


def scheduler_pod(name: str) -> Object:
    """A pod of Volcano's scheduler, with the label that its chart gives it."""
    container = {"name": "volcano-scheduler", "image": "vc-scheduler"}
    return {"metadata": {"name": name, "labels": {"app": "volcano-scheduler"}}, "spec": {"containers": [container]}}


async def test_a_job_goes_from_inqueue_without_pods_to_completed(rig: LifecycleCluster, api: ApiClient) -> None:
    async with rig.replica():
        job, path = await create_job(api, "lm")
        assert await until_status(api, path, phase="Inqueue") == {"phase": "Inqueue"}
        names = await create_pods(api, job)
        await become(api, "Running", *names)
        running = await until_status(api, path, phase="Running", running=3)
        assert [(each["type"], each["status"]) for each in running["conditions"]] == [("Scheduled", "True")]
        await become(api, "Succeeded", *names)
        await until_status(api, path, phase="Completed", running=0, succeeded=3)


async def test_the_spec_that_its_owner_changes_meanwhile_stays(rig: LifecycleCluster, api: ApiClient) -> None:
    async with rig.replica():
        _, path = await create_job(api, "lm")
        await api.patch(path, {"spec": {"minMember": 2, "queue": "other"}})
        await until_status(api, path, phase="Inqueue")
        spec = (await api.get(path)).body["spec"]
        assert (spec["minMember"], spec["queue"]) == (2, "other")


async def test_groups_without_pods_that_are_not_known_to_be_ours_are_not_written(
    rig: LifecycleCluster, api: ApiClient
) -> None:
    async with rig.replica():
        _, theirs = await create_job(api, "theirs", "volcano")
        await api.created(GROUPS, {"metadata": {"name": "bare"}, "spec": {"minMember": 1}})
        _, ours = await create_job(api, "ours")
        await until_status(api, ours, phase="Inqueue")
        assert await status_of(api, theirs) == {}
        assert await status_of(api, f"{GROUPS}/bare") == {}


async def test_a_task_may_name_the_scheduler(rig: LifecycleCluster, api: ApiClient) -> None:
    async with rig.replica():
        manifest = volcano_job("lm", "default", "volcano", {}, master=1)
        manifest["spec"]["tasks"][0]["template"]["spec"]["schedulerName"] = "muster"
        job = await api.created(JOBS, manifest)
        await api.created(GROUPS, pod_group_of(job))
        await until_status(api, f"{GROUPS}/{group_name(job)}", phase="Inqueue")


async def test_a_group_of_kube_batch_with_the_same_name_has_its_own_status(
    rig: LifecycleCluster, api: ApiClient
) -> None:
    async with rig.replica():
        job, path = await create_job(api, "lm")
        await api.created(KUBE_BATCH, {"metadata": {"name": group_name(job)}, "spec": {"minMember": 3}})
        names = await create_pods(api, job)
        await become(api, "Running", *names)
        await until_status(api, path, phase="Running", running=3)
        await until_status(api, f"{KUBE_BATCH}/{group_name(job)}", admitted=3, running=3)


async def test_while_volcanos_scheduler_leads_nothing_is_written(rig: LifecycleCluster, api: ApiClient) -> None:
    await api.created("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
    await api.created(LEASES, lease("2026-01-31T12:00:00.000000Z", 3600))
    _, path = await create_job(api, "lm")
    async with rig.replica() as replica:
        await replica.leadership.until_leading()
        job, _ = await create_job(api, "second")
        await create_pods(api, job)
        await api.created(KUBE_BATCH, {"metadata": {"name": group_name(job)}, "spec": {"minMember": 1}})
        await until_status(api, f"{KUBE_BATCH}/{group_name(job)}", admitted=0)
        assert await status_of(api, path) == {}
        assert await status_of(api, f"{GROUPS}/{group_name(job)}") == {}
        await api.delete(f"{LEASES}/volcano")
        await until_status(api, path, phase="Inqueue")


async def test_while_volcanos_scheduler_has_a_running_pod_nothing_is_written(
    rig: LifecycleCluster, api: ApiClient
) -> None:
    scheduler = f"{SCHEDULERS}/volcano-scheduler-1"
    await api.created("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
    await api.created(SCHEDULERS, scheduler_pod("volcano-scheduler-1"))
    assert (await api.patch(f"{scheduler}/status", {"status": {"phase": "Running"}})).status == 200
    _, path = await create_job(api, "lm")
    async with rig.replica() as replica:
        await replica.leadership.until_leading()
        await api.created(KUBE_BATCH, {"metadata": {"name": "other"}, "spec": {"minMember": 1}})
        await until_status(api, f"{KUBE_BATCH}/other", admitted=0)
        assert await status_of(api, path) == {}
        assert (await api.patch(f"{scheduler}/status", {"status": {"phase": "Succeeded"}})).status == 200
        await until_status(api, path, phase="Inqueue")


async def test_the_setting_overrides_the_lease(rig: LifecycleCluster, api: ApiClient) -> None:
    await api.created("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})
    await api.created(LEASES, lease("2026-01-31T12:00:00.000000Z", 3600))
    job, path = await create_job(api, "lm")
    async with rig.replica(volcano={"status": "never"}):
        await api.created(KUBE_BATCH, {"metadata": {"name": group_name(job)}, "spec": {"minMember": 1}})
        await until_status(api, f"{KUBE_BATCH}/{group_name(job)}", admitted=0)
        assert await status_of(api, path) == {}
    async with rig.replica(volcano={"status": "write"}):
        await until_status(api, path, phase="Inqueue")
