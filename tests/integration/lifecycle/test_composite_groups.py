"""The condition of CompositePodGroups on an API server that serves them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from builders.kube.client import ApiClient
from builders.lifecycle.replicas import LifecycleCluster

NAMESPACE = "namespaces/default"
COMPOSITES = f"/apis/scheduling.k8s.io/v1alpha3/{NAMESPACE}/compositepodgroups"
WORKLOADS = f"/apis/scheduling.k8s.io/v1beta1/{NAMESPACE}/workloads"
GROUPS = f"/apis/scheduling.k8s.io/v1beta1/{NAMESPACE}/podgroups"
PODS = f"/api/v1/{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/{NAMESPACE}/events"
TYPE = "CompositePodGroupInitiallyScheduled"

Object = dict[str, Any]


async def create_workload(api: ApiClient) -> None:
    """Creates the Workload that PodGroups must name."""
    templates = [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 1}}}]
    await api.created(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": templates}})


@pytest.fixture
async def api(rig: LifecycleCluster) -> AsyncIterator[ApiClient]:
    """The API with a Workload, and a replica that leads."""
    await create_workload(rig.api)
    async with rig.replica():
        yield rig.api


async def composite(api: ApiClient, name: str, minimum: int = 0, *, parent: str = "", workload: str = "w") -> None:
    """Creates a CompositePodGroup; without a minimum it is basic."""
    spec: Object = {"schedulingPolicy": {"gang": {"minGroupCount": minimum}} if minimum else {"basic": {}}}
    spec["workloadRef"] = {"workloadName": workload, "templateName": name}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    await api.created(COMPOSITES, {"metadata": {"name": name}, "spec": spec})


async def group(api: ApiClient, name: str, parent: str, *, scheduler: str = "muster") -> None:
    """Creates a PodGroup with a pod."""
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": 1}}, "parentCompositePodGroupName": parent}
    spec["workloadRef"] = {"workloadName": "w", "templateName": "t"}
    await api.created(GROUPS, {"metadata": {"name": name}, "spec": spec})
    containers = [{"name": "main", "image": "pause"}]
    pod = {"schedulerName": scheduler, "schedulingGroup": {"podGroupName": name}, "containers": containers}
    await api.created(PODS, {"metadata": {"name": f"{name}-0"}, "spec": pod})


async def schedule(api: ApiClient, name: str, status: str = "True", message: str = "") -> None:
    """Writes the condition of a PodGroup, as binding does."""
    written = {"type": "PodGroupInitiallyScheduled", "status": status, "message": message}
    written |= {"reason": "Scheduled" if status == "True" else "Unschedulable"}
    written["lastTransitionTime"] = "2026-11-23T00:00:00Z"
    reply = await api.patch(f"{GROUPS}/{name}/status", {"status": {"conditions": [written]}})
    assert reply.status == 200, reply.body


def condition_of(reply: Any) -> Object:
    found = (reply.body.get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == TYPE), {})


async def until(api: ApiClient, name: str, **fields: str) -> Object:
    """Waits until the condition has these fields."""

    def holds(reply: Any) -> bool:
        found = condition_of(reply)
        return all(found.get(key) == value for key, value in fields.items())

    return condition_of(await api.until(f"{COMPOSITES}/{name}", holds))


async def test_it_is_true_once_enough_groups_are_scheduled_and_stays_so(api: ApiClient) -> None:
    await composite(api, "server", 2)
    for name in "abc":
        await group(api, name, "server")
    zero = "0 of 2 groups that it needs are scheduled"
    await until(api, "server", status="False", reason="Unschedulable", message=zero)
    await schedule(api, "a", "False", "0 of 1 members fit")
    await until(api, "server", message=f'{zero}; PodGroup "default/a": 0 of 1 members fit')
    await schedule(api, "b")
    await schedule(api, "c")
    done = await until(api, "server", status="True", reason="Scheduled")
    assert done["message"] == "2 groups are scheduled, as many as it needs"
    assert (await api.delete(f"{GROUPS}/b")).status == 200
    await composite(api, "next", 2)
    await group(api, "d", "next")
    needs = 'CompositePodGroup "default/next" needs 2 groups, of which 1 exist'
    last = await until(
        api, "next", reason="Unschedulable", message=f"{needs}: create the others, or lower minGroupCount"
    )
    assert last["status"] == "False"
    assert condition_of(await api.get(f"{COMPOSITES}/server")) == done


async def test_a_composite_counts_in_another_when_it_is_scheduled(api: ApiClient) -> None:
    await composite(api, "root", 2)
    await composite(api, "inner", 1, parent="root")
    await group(api, "a", "inner")
    await group(api, "b", "root")
    await schedule(api, "b")
    await until(
        api,
        "root",
        status="False",
        message="1 of 2 groups that it needs are scheduled; "
        'CompositePodGroup "default/inner": 0 of 1 groups that it needs are scheduled',
    )
    await schedule(api, "a")
    await until(api, "inner", status="True")
    await until(api, "root", status="True")


async def test_a_basic_one_is_scheduled_with_its_first_group(api: ApiClient) -> None:
    await composite(api, "any")
    await group(api, "a", "any")
    await group(api, "b", "any")
    await until(api, "any", status="False")
    await schedule(api, "b")
    await until(api, "any", status="True", message="1 group is scheduled, as many as it needs")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            (("root", 1, "other", "w"), ("other", 1, "root", "w")),
            'its CompositePodGroups form a cycle: "root" below "other"',
        ),
        ((("root", 1, "top", "w"), ("top", 1, "", "v")), 'are of several Workloads: "v", "w"; use one'),
        (
            (("root", 1, "c1", "w"), *((f"c{n}", 1, f"c{n + 1}" if n < 3 else "", "w") for n in range(1, 4))),
            '"default/root" is below 3 others, one too many: "root" below "c1" below "c2" below "c3"',
        ),
    ],
    ids=["cycle", "Workloads", "depth"],
)
async def test_invalid_trees_are_named_and_reported(
    api: ApiClient, tree: tuple[tuple[str, int, str, str], ...], message: str
) -> None:
    for name, minimum, parent, workload in tree:
        await composite(api, name, minimum, parent=parent, workload=workload)
    await group(api, "a", "root")
    found = await until(api, "root", status="False", reason="Invalid")
    assert message in found["message"]

    def reported(reply: Any) -> bool:
        events = [each for each in reply.body["items"] if each["regarding"]["name"] == "root"]
        return any((each["reason"], each["note"]) == ("GangDeclaration", found["message"]) for each in events)

    await api.until(EVENTS, reported)


async def test_a_parent_that_does_not_exist_is_waited_for(api: ApiClient) -> None:
    await composite(api, "inner", 1, parent="root")
    await group(api, "a", "inner")
    missing = await until(api, "inner", status="False", reason="Unschedulable")
    assert 'CompositePodGroup "default/root", the parent of' in missing["message"]
    await composite(api, "root", 1)
    await until(api, "inner", message="0 of 1 groups that it needs are scheduled")


async def test_those_of_other_schedulers_are_left_alone(api: ApiClient) -> None:
    await composite(api, "theirs", 1)
    await group(api, "a", "theirs", scheduler="default-scheduler")
    await composite(api, "ours", 1)
    await group(api, "b", "ours")
    await until(api, "ours", status="False")
    assert condition_of(await api.get(f"{COMPOSITES}/theirs")) == {}
    await schedule(api, "a")
    await schedule(api, "b")
    await until(api, "ours", status="True")
    assert condition_of(await api.get(f"{COMPOSITES}/theirs")) == {}


async def test_the_next_leader_goes_on(rig: LifecycleCluster) -> None:
    api = rig.api
    await create_workload(api)
    async with rig.replica():
        await composite(api, "server", 1)
        await group(api, "a", "server")
        before = await until(api, "server", status="False")
    await schedule(api, "a", "False", "no node has room")
    async with rig.replica("two"):
        after = await until(api, "server", message=f'{before["message"]}; PodGroup "default/a": no node has room')
        assert after["lastTransitionTime"] == before["lastTransitionTime"]
        await schedule(api, "a")
        await until(api, "server", status="True")
