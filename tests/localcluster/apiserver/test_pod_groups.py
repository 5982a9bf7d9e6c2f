"""PodGroups and Workloads of scheduling.k8s.io in all versions."""

from typing import Any

import pytest

from builders.kube.client import MERGE, PODS, TABLE, ApiClient, pod

GROUPS = "/apis/scheduling.k8s.io/{}/namespaces/default/podgroups"
BETA, ALPHA3, ALPHA2 = (GROUPS.format(version) for version in ("v1beta1", "v1alpha3", "v1alpha2"))
WORKLOADS = "/apis/scheduling.k8s.io/{}/namespaces/default/workloads"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}


def group(name: str = "g", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {**GANG, **spec}}


def condition(name: str, status: str = "True") -> dict[str, Any]:
    return {"type": name, "status": status, "reason": "Scheduled", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def test_all_versions_are_one_object(api: ApiClient) -> None:
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    await api.created(WORKLOADS.format("v1alpha2"), {"metadata": {"name": "w"}, "spec": {}})
    created = await api.created(ALPHA2, group(disruptionMode="PodGroup", podGroupTemplateRef=reference))
    assert created["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    beta = (await api.get(f"{BETA}/g")).body
    assert beta["apiVersion"] == "scheduling.k8s.io/v1beta1"
    workload = {"workloadName": "w", "templateName": "t"}
    assert beta["spec"] == {**GANG, "disruptionMode": {"all": {}}, "workloadRef": workload, "priority": 0}
    assert (await api.get(f"{ALPHA3}/g")).body == {**beta, "apiVersion": "scheduling.k8s.io/v1alpha3"}
    assert (await api.get(f"{ALPHA2}/g")).body == created


async def test_status_is_a_subresource_with_condition_names_by_version(api: ApiClient) -> None:
    created = await api.created(BETA, {**group(), "status": {"conditions": [condition("x")]}})
    assert "status" not in created
    status = {"status": {"conditions": [condition("PodGroupInitiallyScheduled")]}}
    assert (await api.patch(f"{BETA}/g/status", status, MERGE)).status == 200
    old = (await api.get(f"{ALPHA2}/g")).body["status"]["conditions"]
    assert [each["type"] for each in old] == ["PodGroupScheduled"]
    table = (await api.get(BETA, Accept=TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Policy", "Workload", "Status", "Age"]
    assert table["rows"][0]["cells"][:4] == ["g", "Gang", "<none>", "Scheduled"]


async def test_list_items_have_no_version(api: ApiClient) -> None:
    await api.created(BETA, group())
    listed = (await api.get("/apis/scheduling.k8s.io/v1alpha2/podgroups")).body
    assert (listed["apiVersion"], listed["kind"]) == ("scheduling.k8s.io/v1alpha2", "PodGroupList")
    assert "apiVersion" not in listed["items"][0]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"schedulingPolicy": {}}, "must specify exactly one of: `basic`, `gang`"),
        ({"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}, "must specify exactly one of"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "should be greater than or equal to 1"),
        ({"schedulingPolicy": {"gang": {}}}, "spec.schedulingPolicy.gang.minCount: Required value"),
        ({"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "must have at most 1 item"),
        ({"schedulingConstraints": {"topology": [{"key": "a b"}]}}, "spec.schedulingConstraints.topology[0].key"),
        ({"disruptionMode": {"single": {}, "all": {}}}, "must specify exactly one of: `single`, `all`"),
        ({"preemptionPolicy": "Sometimes"}, "Unsupported value"),
        ({"parentCompositePodGroupName": "root"}, "workloadRef must be set with it"),
    ],
)
async def test_invalid_pod_groups(api: ApiClient, spec: dict[str, Any], words: str) -> None:
    reply = await api.post(BETA, group(**spec))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert words in reply.message


async def test_strict_validation_rejects_unknown_fields(api: ApiClient) -> None:
    reply = await api.post(f"{ALPHA2}?fieldValidation=Strict", group(workloadRef={}))
    assert reply.status == 400
    assert 'unknown field "spec.workloadRef"' in reply.message


async def test_only_the_minimum_is_mutable_except_in_v1alpha2(api: ApiClient) -> None:
    await api.created(BETA, group())
    more = {"spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}}
    assert (await api.patch(f"{ALPHA2}/g", more)).status == 422
    assert (await api.patch(f"{BETA}/g", more)).body["spec"]["schedulingPolicy"] == {"gang": {"minCount": 5}}
    reply = await api.patch(f"{BETA}/g", {"spec": {"priorityClassName": "x"}})
    assert (reply.status, "field is immutable" in reply.message) == (422, True)


async def test_the_priority_class_sets_the_priority(api: ApiClient) -> None:
    assert (await api.post(BETA, group(priorityClassName="high"))).status == 403
    await api.created(CLASSES, {"metadata": {"name": "high"}, "value": 7})
    assert (await api.created(BETA, group(priorityClassName="high")))["spec"]["priority"] == 7
    reply = await api.post(BETA, group("other", priority=3))
    assert (reply.status, "must match the priority computed (0)" in reply.message) == (403, True)
    assert (await api.created(BETA, group("none")))["spec"]["priority"] == 0
    await api.created(CLASSES, {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True})
    spec = (await api.created(BETA, group("default")))["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (5, "usual")


async def test_the_referenced_workload_must_exist(api: ApiClient) -> None:
    reply = await api.post(BETA, group(workloadRef={"workloadName": "w", "templateName": "t"}))
    assert (reply.status, 'Workload "w" not found' in reply.message) == (403, True)


async def test_the_scheduling_group_of_a_pod_is_immutable(api: ApiClient) -> None:
    await api.created(PODS, pod("a", schedulingGroup={"podGroupName": "g"}))
    assert (await api.patch(f"{PODS}/a", {"spec": {"schedulingGroup": {"podGroupName": "h"}}})).status == 422
    for bad in ({}, {"podGroupName": ""}, {"podGroupName": "A/B"}):
        assert (await api.post(PODS, pod("b", schedulingGroup=bad))).status == 422
    assert (await api.post(PODS, pod("b", schedulingGroup={"podGroupName": 7}))).status == 400


async def test_a_terminating_group_stays_until_its_pods_have_ended(api: ApiClient) -> None:
    await api.created(BETA, group())
    for name in ("a", "b"):
        await api.created(PODS, pod(name, schedulingGroup={"podGroupName": "g"}))
    await api.created(PODS, pod("other", schedulingGroup={"podGroupName": "h"}))
    reply = await api.delete(f"{BETA}/g")
    assert reply.body["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    await api.delete(f"{PODS}/a")
    assert "deletionTimestamp" in (await api.get(f"{BETA}/g")).body["metadata"]
    assert (await api.patch(f"{PODS}/b/status", {"status": {"phase": "Succeeded"}}, MERGE)).status == 200
    await api.until_gone(f"{BETA}/g")


async def test_a_group_without_pods_is_removed_at_once(api: ApiClient) -> None:
    await api.created(BETA, group())
    await api.delete(f"{BETA}/g")
    await api.until_gone(f"{BETA}/g")


async def test_workloads_are_stored(api: ApiClient) -> None:
    spec = {"podGroupTemplates": [{"name": "t", **GANG}]}
    await api.created(WORKLOADS.format("v1alpha2"), {"metadata": {"name": "w"}, "spec": spec})
    assert (await api.get(f"{WORKLOADS.format('v1beta1')}/w")).body["spec"] == spec
