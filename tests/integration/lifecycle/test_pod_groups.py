"""Status and restarts of PodGroups on a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from builders.e2e.faults import EVERYTHING, Requests
from builders.kube.client import ApiClient, node
from builders.lifecycle.replicas import LifecycleCluster

KUBE_BATCH = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
OWNERS = "/api/v1/namespaces/default/configmaps"
RESTART = [{"event": "Unschedulable", "action": "Restart"}]

Object = dict[str, Any]

GROUP_NAME: Object = {"annotations": {"scheduling.k8s.io/group-name": "train"}}


@pytest.fixture
async def api(rig: LifecycleCluster) -> AsyncIterator[ApiClient]:
    """The API with both kinds of PodGroups and a running replica of lifecycle."""
    for manifest in ("scheduling.incubator.k8s.io_podgroups.yaml", "scheduling.x-k8s.io_podgroups.yaml"):
        await rig.install(manifest)
    await ground(rig.api)
    async with rig.replica():
        yield rig.api


async def ground(api: ApiClient) -> None:
    """A node, and an owner of pods that does not recreate them."""
    await api.created("/api/v1/nodes", node("node-1"))
    await api.created(OWNERS, {"metadata": {"name": "work"}})


async def group(api: ApiClient, path: str, **spec: Any) -> Object:
    created: Object = await api.created(path, {"metadata": {"name": "train"}, "spec": spec})
    return created


async def pods(
    api: ApiClient, *names: str, owned: bool = True, scheduler: str = "muster", marks: Object = GROUP_NAME
) -> None:
    """Creates pods of the group train."""
    owner = (await api.get(f"{OWNERS}/work")).body["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "work", "uid": owner["uid"], "controller": True}
    for name in names:
        metadata = {"name": name, **marks, **({"ownerReferences": [reference]} if owned else {})}
        containers = [{"name": "main", "image": "registry.example.com/work:1"}]
        spec = {"schedulerName": scheduler, "containers": containers, "terminationGracePeriodSeconds": 0}
        await api.created(PODS, {"metadata": metadata, "spec": spec})


async def become(api: ApiClient, phase: str, *names: str) -> None:
    """Sets the pods' phase as the kubelet does, after binding pods without a node."""
    for name in names:
        if not (await api.get(f"{PODS}/{name}")).body["spec"].get("nodeName"):
            assert (await api.bind(name, "node-1")).status == 201
        reply = await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})
        assert reply.status == 200, reply.body


async def until_status(api: ApiClient, path: str, **fields: Any) -> Object:
    """Waits until the group's status has these fields; returns the group."""

    def holds(reply: Any) -> bool:
        status = reply.body.get("status", {})
        return all(status.get(name) == value for name, value in fields.items())

    return (await api.until(f"{path}/train", holds)).body  # type: ignore[no-any-return]


async def until_event(api: ApiClient, reason: str, kind: str = "PodGroup") -> Object:
    def found(reply: Any) -> list[Object]:
        return [each for each in reply.body["items"] if (each["reason"], each["regarding"]["kind"]) == (reason, kind)]

    return found(await api.until(EVENTS, lambda reply: bool(found(reply))))[0]


async def names_of(api: ApiClient) -> set[str]:
    return set(await api.names(PODS))


async def test_kube_batch_counts_follow_the_pods(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=3)
    await until_status(api, KUBE_BATCH, admitted=0, running=0, succeeded=0, failed=0)
    await pods(api, "a", "b", "c")
    await become(api, "Running", "a", "b", "c")
    await until_status(api, KUBE_BATCH, admitted=3, running=3, succeeded=0, failed=0)
    await become(api, "Succeeded", "a")
    await become(api, "Failed", "b")
    await until_status(api, KUBE_BATCH, admitted=3, running=1, succeeded=1, failed=1)
    await api.delete(f"{PODS}/b")
    await until_status(api, KUBE_BATCH, admitted=2, running=1, succeeded=1, failed=0)


async def test_counts_written_by_others_are_corrected(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=1)
    await pods(api, "a")
    await become(api, "Running", "a")
    await until_status(api, KUBE_BATCH, running=1)
    await api.patch(f"{KUBE_BATCH}/train/status", {"status": {"running": 99, "phase": "whatever"}})
    await until_status(api, KUBE_BATCH, running=1)


async def test_a_recreated_group_starts_without_history(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=2)
    await pods(api, "a", "b")
    await become(api, "Running", "a")
    await become(api, "Failed", "b")
    first = await until_event(api, "Unschedulable")
    await api.delete(f"{KUBE_BATCH}/train")
    again = await group(api, KUBE_BATCH, minMember=2)
    await until_status(api, KUBE_BATCH, running=1, failed=1)

    def about_both(reply: Any) -> bool:
        uids = {each["regarding"]["uid"] for each in reply.body["items"] if each["reason"] == "Unschedulable"}
        return uids == {first["regarding"]["uid"], again["metadata"]["uid"]}

    await api.until(EVENTS, about_both)


async def test_a_group_that_cannot_reach_its_minimum_reports_it(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=3)
    await pods(api, "a", "b", "c")
    await become(api, "Running", "a", "b", "c")
    await until_status(api, KUBE_BATCH, running=3)
    await become(api, "Failed", "c")
    event = await until_event(api, "Unschedulable")
    assert event["note"] == (
        "2 of its pods are running, 0 pending and 0 succeeded: fewer than its minimum of 3; 1 failed"
    )
    assert (event["regarding"]["name"], event["type"]) == ("train", "Warning")
    assert await names_of(api) == {"a", "b", "c"}


async def test_phases_of_coscheduling_from_the_first_pod_to_the_last(api: ApiClient) -> None:
    label = {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}
    await group(api, COSCHEDULING, minMember=2)
    await until_status(api, COSCHEDULING, phase="Pending")
    await pods(api, "a", marks=label)
    await pods(api, "b", marks=label)
    ready = await until_status(api, COSCHEDULING, phase="PreScheduling", scheduled=0, occupiedBy="default/work")
    assert ready["status"]["scheduleStartTime"]
    assert (await api.bind("a", "node-1")).status == 201
    await until_status(api, COSCHEDULING, phase="Scheduling", scheduled=1)
    assert (await api.bind("b", "node-1")).status == 201
    await until_status(api, COSCHEDULING, phase="Scheduled", scheduled=2)
    await become(api, "Running", "a", "b")
    await until_status(api, COSCHEDULING, phase="Running", running=2)
    await api.delete(f"{PODS}/a")
    await until_status(api, COSCHEDULING, phase="Unknown", running=1)
    await pods(api, "a", marks=label)
    await become(api, "Succeeded", "a", "b")
    await until_status(api, COSCHEDULING, phase="Finished", succeeded=2)
    await api.delete(f"{PODS}/a")
    await api.delete(f"{PODS}/b")
    await pods(api, "c", marks=label)
    last = await until_status(api, COSCHEDULING, phase="Finished", succeeded=2)
    assert last["status"]["scheduleStartTime"] == ready["status"]["scheduleStartTime"]


async def test_koordinators_groups_have_the_same_phases_by_their_pods_minimum(
    rig: LifecycleCluster, api: ApiClient
) -> None:
    await rig.install("scheduling.sigs.k8s.io_podgroups.yaml")
    path = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups"
    await group(api, path, minMember=3)
    marks = {
        "labels": {"pod-group.scheduling.sigs.k8s.io": "train"},
        "annotations": {"gang.scheduling.koordinator.sh/min-available": "2"},
    }
    await pods(api, "a", "b", marks=marks)
    await become(api, "Running", "a", "b")
    await until_status(api, path, phase="Running", running=2)


async def test_a_group_of_another_scheduler_is_left_alone(api: ApiClient) -> None:
    await pods(api, "a", scheduler="other")
    await group(api, KUBE_BATCH, minMember=1)
    await become(api, "Running", "a")
    await api.created(KUBE_BATCH, {"metadata": {"name": "fence"}, "spec": {"minMember": 1}})
    await api.until(f"{KUBE_BATCH}/fence", lambda reply: "status" in reply.body)
    assert not (await api.get(f"{KUBE_BATCH}/train")).body.get("status")


async def test_a_broken_group_with_a_policy_is_restarted_as_a_whole(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=3, policy=RESTART)
    await pods(api, "a", "b", "c", "d")
    await become(api, "Running", "a", "b", "c")
    await until_status(api, KUBE_BATCH, running=3)
    await become(api, "Failed", "c")
    await api.until(PODS, lambda reply: not reply.body["items"])
    event = await until_event(api, "Restarted")
    assert event["note"].startswith("fewer than 3 of its pods were running: all 4 were deleted")
    await until_status(api, KUBE_BATCH, running=0, failed=0)
    await api.until(f"{KUBE_BATCH}/train", lambda reply: not reply.body["metadata"].get("annotations"))
    await pods(api, "a2", "b2", "c2")
    await become(api, "Running", "a2", "b2")
    await until_status(api, KUBE_BATCH, running=2)
    await become(api, "Running", "c2")
    await until_status(api, KUBE_BATCH, running=3)
    assert await names_of(api) == {"a2", "b2", "c2"}


async def test_pods_of_a_restarted_group_get_a_condition_before_deletion(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=2, policy=RESTART)
    await pods(api, "a", "b")
    held = {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}
    assert (await api.patch(f"{PODS}/b", held)).status == 200
    await become(api, "Running", "a", "b")
    await until_status(api, KUBE_BATCH, running=2)
    await become(api, "Failed", "a")
    await api.until_gone(f"{PODS}/a")
    left = (await api.until(f"{PODS}/b", lambda reply: "deletionTimestamp" in reply.body["metadata"])).body
    conditions = {each["type"]: each for each in left["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "PodGroupRestarted"
    assert len(conditions) > 1  # what others say stays


async def test_a_group_with_a_fast_controller_is_restarted_too(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=2, policy=RESTART)
    await pods(api, "a", "b")
    await become(api, "Running", "a", "b")
    await until_status(api, KUBE_BATCH, running=2)
    await api.delete(f"{PODS}/a")
    await pods(api, "a-again")
    await api.until(PODS, lambda reply: not reply.body["items"])


async def test_a_group_that_breaks_while_its_counts_are_written_is_restarted(rig: LifecycleCluster) -> None:
    for manifest in ("scheduling.incubator.k8s.io_podgroups.yaml", "scheduling.x-k8s.io_podgroups.yaml"):
        await rig.install(manifest)
    api = rig.api
    await ground(api)
    label: Object = {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}
    await group(api, COSCHEDULING, minMember=1)
    await group(api, KUBE_BATCH, minMember=2, policy=RESTART)
    kube_batch = "scheduling.incubator.k8s.io/v1alpha1/.*podgroups"
    async with rig.replica("one", faulty=True):
        await pods(api, "a", "b")
        await become(api, "Running", "a")
        await until_status(api, KUBE_BATCH, admitted=1, running=1)
        with (
            rig.faults.hold(Requests("GET", kube_batch)) as watch,
            rig.faults.hold(
                Requests("PATCH", f"{kube_batch}/train/status", b'"running":2'), carried_out=True
            ) as answer,
        ):
            rig.faults.break_watches()
            await watch.until(1)
            await become(api, "Running", "b")
            await answer.until(1)
            assert (await api.get(f"{KUBE_BATCH}/train")).body["status"]["running"] == 2
            await api.delete(f"{PODS}/a")
            await pods(api, "a-again")
            await pods(api, "later", marks=label)
            await become(api, "Running", "a-again", "later")
            await until_status(api, COSCHEDULING, running=1)  # so all that was before it has been seen
        await api.until_gone(f"{PODS}/b")


async def test_pods_without_a_controller_are_never_deleted(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=2, policy=RESTART)
    await pods(api, "a")
    await pods(api, "bare", owned=False)
    await become(api, "Running", "a", "bare")
    await until_status(api, KUBE_BATCH, running=2)
    await become(api, "Failed", "a")
    event = await until_event(api, "CannotRestart")
    assert "pod bare has no controller to recreate it" in event["note"]
    assert await names_of(api) == {"a", "bare"}


async def test_a_group_may_recover_before_its_timeout(api: ApiClient) -> None:
    await group(api, KUBE_BATCH, minMember=2, policy=[{**RESTART[0], "timeout": "1h"}])
    await pods(api, "a", "b")
    await become(api, "Running", "a", "b")
    await until_status(api, KUBE_BATCH, running=2)
    await api.delete(f"{PODS}/b")
    await api.until(f"{KUBE_BATCH}/train", lambda reply: bool(reply.body["metadata"].get("annotations")))
    await pods(api, "c")
    await become(api, "Running", "c")
    await api.until(f"{KUBE_BATCH}/train", lambda reply: not reply.body["metadata"].get("annotations"))
    assert await names_of(api) == {"a", "c"}


async def test_another_replica_finishes_a_restart(rig: LifecycleCluster) -> None:
    await rig.install("scheduling.incubator.k8s.io_podgroups.yaml")
    api = rig.api
    await ground(api)
    async with rig.replica("one", faulty=True):
        await group(api, KUBE_BATCH, minMember=3, policy=RESTART)
        await pods(api, "a", "b", "c", "d")
        await become(api, "Running", "a", "b", "c", "d")
        await until_status(api, KUBE_BATCH, running=4)
        with rig.faults.hold(Requests("DELETE", "/pods/[a-d]"), let_pass=2) as held:
            await become(api, "Failed", "c", "d")
            await held.until(1)
            with rig.faults.cut(EVERYTHING):
                assert len(await names_of(api)) == 2
                async with rig.replica("two"):
                    await api.until(PODS, lambda reply: not reply.body["items"])
                    await until_status(api, KUBE_BATCH, running=0)


async def test_falling_below_the_minimum_is_recorded_before_the_counts_change(rig: LifecycleCluster) -> None:
    await rig.install("scheduling.incubator.k8s.io_podgroups.yaml")
    api = rig.api
    await ground(api)
    await group(api, KUBE_BATCH, minMember=3, policy=RESTART)
    async with rig.replica("one", faulty=True):
        await pods(api, "a", "b", "c")
        await become(api, "Running", "a", "b", "c")
        await until_status(api, KUBE_BATCH, running=3)
        with rig.faults.refuse(Requests("PATCH", "/podgroups/train"), 500) as refused:
            await become(api, "Failed", "c")
            await refused.struck(2)
            assert (await api.get(f"{KUBE_BATCH}/train")).body["status"]["running"] == 3
    assert await names_of(api) == {"a", "b", "c"}
    async with rig.replica("two"):
        await api.until(PODS, lambda reply: not reply.body["items"])


async def test_a_kind_without_status_subresource_is_written_all_the_same(rig: LifecycleCluster) -> None:
    crd = rig.manifest("scheduling.incubator.k8s.io_podgroups.yaml")
    del crd["spec"]["versions"][0]["subresources"]
    await rig.create_crd(crd)
    await ground(rig.api)
    await group(rig.api, KUBE_BATCH, minMember=1)
    await pods(rig.api, "a")
    await become(rig.api, "Running", "a")
    async with rig.replica():
        await until_status(rig.api, KUBE_BATCH, running=1)
