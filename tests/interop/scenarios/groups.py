"""Scenarios of workloads whose pods form groups: of LeaderWorkerSet, of Volcano's partitions, of Kueue's topology, of
CompositePodGroups.
"""

from functools import partial
from typing import Final

from builders.e2e.cluster import node_of
from builders.wait import eventually
from interop.gang import JSON, KUEUE_RACKS, RACK, Gang
from interop.kinds.kubernetes import CHILDREN, CHILDREN_NEEDED, in_composite, with_basic_composite
from interop.kinds.kueue import admitted_in_part, in_one_rack
from interop.kinds.lws import replicas
from interop.kinds.volcano import (
    PARTITION,
    SERVER,
    SURPLUS,
    as_native_job,
    in_partitions,
    of_tasks_with_minima,
    one_partition_enough,
)
from interop.sandbox import Sandbox
from interop.scenarios.rivals import HIGH

_TASK: Final = "volcano.sh/task-spec"
_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"


async def leader_worker_groups(box: Sandbox) -> None:
    """Each group of a LeaderWorkerSet is a gang of its own: of three, two fit and run whole, and the third holds
    nothing until there is a node more. A leader that fails restarts its group only. Fewer replicas leave whole groups.
    """
    await box.nodes(3 * box.size - 1)
    gang = await box.gang("groups", options={"replicas": 3})
    await box.until(lambda: _sizes(box, gang) == [box.size] * 2, "two groups run whole")
    await box.until(lambda: len(box.pods(gang)) == 3 * box.size, "the pods of all groups exist")
    assert len(box.bound(gang)) == 2 * box.size, f"pods of the third group are bound\n{box.described()}"
    await box.nodes(1)
    await box.until(lambda: _sizes(box, gang) == [box.size] * 3, "three groups run whole")
    before = box.uids(gang)
    leader = box.pods(gang)[0]
    others = {pod["metadata"]["uid"] for pod in box.pods(gang) if _label(pod, _GROUP) != _label(leader, _GROUP)}
    await box.fail(leader)
    await box.until(
        lambda: _sizes(box, gang) == [box.size] * 3 and before & box.uids(gang) == others,
        "the group of the failed leader runs again, with new pods",
    )
    await box.patch(replicas(gang, 1))
    await box.started(gang, box.size)


async def partitions(box: Sandbox) -> None:
    """The partitions of a task are subgroups, each in one HyperNode: they start together when each fits, and start
    again together after a pod has failed.
    """
    await box.nodes(box.size + 1, {RACK: f"{box.namespace}-a"})
    await box.nodes(box.size - 1, {RACK: f"{box.namespace}-b"})
    gang = await box.gang("partitions", change=in_partitions)
    box.starts.expect(gang.namespace, gang.name, 2 * box.size)
    await box.waits(gang)
    await box.nodes(1, {RACK: f"{box.namespace}-b"})
    for _ in range(2):
        await box.started(gang, 2 * box.size)
        racks = {_label(pod, PARTITION): set[str]() for pod in box.pods(gang)}
        for pod in box.pods(gang):
            racks[_label(pod, PARTITION)].add(_rack(box, pod))
        assert len(racks) == 2, f"there are partitions {sorted(racks)}"
        assert all(len(each) == 1 for each in racks.values()), f"racks by partition: {racks}"
        before = box.uids(gang)
        await box.fail(box.pods(gang)[0])
        await box.until(partial(_are_new, box, gang, before), "all pods are new")


async def preempted_partition(box: Sandbox) -> None:
    """One of two partitions is enough: a gang of higher priority takes the other one whole, which comes back when that
    is deleted. The first keeps running.
    """
    for rack in "ab":
        await box.nodes(box.size, {RACK: f"{box.namespace}-{rack}"})
    gang = await box.gang("partitions", change=one_partition_enough)
    await box.started(gang, 2 * box.size)
    before = {_label(pod, PARTITION): set[str]() for pod in box.pods(gang)}
    for pod in box.pods(gang):
        before[_label(pod, PARTITION)].add(pod["metadata"]["uid"])
    high = await box.gang("high", priority_class=HIGH)
    await box.started(high)
    await box.until(lambda: len(box.running(gang)) == box.size, "one partition runs")
    assert {pod["metadata"]["uid"] for pod in box.running(gang)} in before.values(), box.described()
    await box.delete(high)
    await box.started(gang, 2 * box.size)


async def tasks_with_minima(box: Sandbox) -> None:
    """A vcjob with more pods than it needs starts with the minimum of each task, its server among them, and not without
    one; the other pods start when they fit. A gang of higher priority takes only these.
    """
    await box.nodes(box.size - 1)
    gang = await box.gang("tasks", change=of_tasks_with_minima)
    await box.waits(gang, box.size + SURPLUS)
    await box.nodes(1)
    await box.until(lambda: len(box.running(gang)) == box.size, f"the minimum of {gang.name} runs")
    await box.nodes(box.size)
    await box.started(gang, box.size + SURPLUS)
    members = box.uids(gang)
    high = await box.gang("high", priority_class=HIGH)
    await box.started(high)
    await box.until(lambda: len(box.running(gang)) == box.size, f"the minimum of {gang.name} runs")
    running = {pod["metadata"]["uid"]: _label(pod, _TASK) for pod in box.running(gang)}
    assert running.keys() <= members, f"pods that the gang needs were replaced\n{box.described()}"
    assert sorted(running.values()).count(SERVER) == 1, f"tasks of the pods that run: {running.values()}"
    await box.delete(high)
    await box.started(gang, box.size + SURPLUS)


async def beside_generated_groups(box: Sandbox) -> None:
    """Volcano's controllers make PodGroups for pods of Muster that have none: a Job whose gang is a PodGroup of
    Kubernetes starts whole all the same.
    """
    await box.nodes(box.size - 1)
    gang = await box.gang("native", change=as_native_job)

    def named() -> bool:
        annotations = [pod["metadata"].get("annotations") or {} for pod in box.pods(gang)]
        return len(annotations) == box.size and all("scheduling.k8s.io/group-name" in each for each in annotations)

    await box.until(named, f"all pods of {gang.name} name a PodGroup of Volcano")
    await box.waits(gang)
    await box.nodes(1)
    await box.started(gang)


async def composite(box: Sandbox) -> None:
    """Two of the three PodGroups of a CompositePodGroup are enough: they start together, or none does, and the third
    starts as soon as it fits. The CompositePodGroup says so in its status.
    """
    await box.nodes(CHILDREN_NEEDED * box.size - 1)
    gang = await box.gang("composite", change=in_composite)
    box.starts.expect(gang.namespace, gang.name, CHILDREN_NEEDED * box.size)
    await box.until(lambda: len(box.pods(gang)) == CHILDREN * box.size, "all pods exist")
    await eventually(
        partial(_composite_says, box, gang, "False", "Unschedulable"), "the CompositePodGroup is unschedulable"
    )
    assert not box.bound(gang), box.described()
    for groups in (CHILDREN_NEEDED, CHILDREN):
        await box.nodes(1 if groups == CHILDREN_NEEDED else box.size)
        await box.until(lambda n=groups * box.size: len(box.running(gang)) == n, f"{groups} groups run")  # type: ignore[misc]
        await eventually(partial(_composite_says, box, gang, "True", "Scheduled"), "the CompositePodGroup is scheduled")


async def basic_composite(box: Sandbox) -> None:
    """A PodGroup starts together with a basic CompositePodGroup, of which one of two PodGroups suffices: with the first
    that fits, or none does; the other one starts on its own as soon as it fits.
    """
    await box.nodes(2 * box.size - 1)
    gang = await box.gang("nested", change=with_basic_composite)
    box.starts.expect(gang.namespace, gang.name, 2 * box.size)
    await box.until(lambda: len(box.pods(gang)) == CHILDREN * box.size, "all pods exist")
    await eventually(
        partial(_composite_says, box, gang, "False", "Unschedulable"), "the CompositePodGroup is unschedulable"
    )
    assert not box.bound(gang), box.described()
    await box.nodes(1)
    await box.until(lambda: len(box.running(gang)) == 2 * box.size, "two groups run")
    needed = [pod for pod in box.running(gang) if pod["spec"]["schedulingGroup"]["podGroupName"] == f"{gang.name}-0"]
    assert len(needed) == box.size, f"the group that is needed does not run\n{box.described()}"
    for name in (gang.name, f"{gang.name}-any"):
        await eventually(partial(_composite_says, box, gang, "True", "Scheduled", name), f"{name} is scheduled")
    await box.nodes(box.size)
    await box.until(lambda: len(box.running(gang)) == CHILDREN * box.size, "all groups run")


async def assigned_racks(box: Sandbox) -> None:
    """Kueue assigns racks (topology-aware scheduling): two gangs start whole on the nodes that it chose, each in one
    rack; a third one has no pods until one of them has completed.
    """
    for rack in "ab":
        await box.nodes(box.size, {RACK: rack, KUEUE_RACKS: "true"})
    gangs = [await box.gang(name, change=in_one_rack) for name in ("one", "two")]
    for gang in gangs:
        await box.started(gang)
        assert len({_rack(box, pod) for pod in box.pods(gang)}) == 1, box.described()
    waiting = await box.gang("three", change=in_one_rack)
    await eventually(partial(_waits_for_quota, box, waiting), f"Kueue has tried to admit {waiting.name}")
    assert not box.pods(waiting), box.described()
    await box.succeed(gangs[0])
    await box.started(waiting)
    assert len({_rack(box, pod) for pod in box.pods(waiting)}) == 1, box.described()


async def pods_not_ready(box: Sandbox) -> None:
    """Kueue evicts a gang whose pods are not ready in time, and admits it again: it waits as before with its new pods,
    and starts whole once it fits.
    """
    await box.nodes(box.size - 1)
    gang = await box.gang("late")
    await box.waits(gang)
    before = box.uids(gang)
    await box.until(lambda: not before & box.uids(gang), f"Kueue has evicted {gang.name}")
    await box.waits(gang)
    await box.nodes(1)
    await box.started(gang, without=before)


async def partial_admission(box: Sandbox) -> None:
    """Kueue admits a Job with one pod less than it asks for: the gang is as large as what was admitted."""
    await box.nodes(box.size - 2)
    gang = await box.gang("smaller", change=admitted_in_part)
    box.starts.expect(gang.namespace, gang.name, box.size - 1)
    await box.waits(gang, box.size - 1)
    await box.nodes(1)
    await box.started(gang, box.size - 1)


def _sizes(box: Sandbox, gang: Gang) -> list[int]:
    """Number of pods that run, of each group that has any."""
    groups = [_label(pod, _GROUP) for pod in box.running(gang)]
    return [groups.count(each) for each in sorted(set(groups))]


async def _waits_for_quota(box: Sandbox, gang: Gang) -> bool:
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{box.namespace}/workloads"
    return any(
        condition["type"] == "QuotaReserved" and condition["status"] == "False"
        for each in (await box.cluster.call("GET", path))["items"]
        if each["metadata"]["ownerReferences"][0]["name"] == gang.name
        for condition in each.get("status", {}).get("conditions", ())
    )


async def _composite_says(box: Sandbox, gang: Gang, status: str, reason: str, name: str = "") -> bool:
    """The condition of a CompositePodGroup, by default the one with the gang's name, has this status and reason."""
    path = f"/apis/scheduling.k8s.io/v1alpha3/namespaces/{box.namespace}/compositepodgroups/{name or gang.name}"
    found = await box.cluster.call("GET", path)
    return any(
        (each["type"], each["status"], each["reason"]) == ("CompositePodGroupInitiallyScheduled", status, reason)
        for each in found.get("status", {}).get("conditions", ())
    )


def _are_new(box: Sandbox, gang: Gang, before: set[str]) -> bool:
    return not before & box.uids(gang)


def _label(pod: JSON, key: str) -> str:
    return str(pod["metadata"]["labels"].get(key, ""))


def _rack(box: Sandbox, pod: JSON) -> str:
    return str(box.cluster.nodes[node_of(pod)]["metadata"]["labels"][RACK])
