"""kube-arbitrator end to end: QueueJobs from creation to completion, and jobs of any other controller."""

from collections.abc import Callable
from typing import Any

import pytest

from builders.e2e.cluster import node_of
from builders.e2e.faults import Requests
from builders.e2e.observations import LABEL
from builders.e2e.world import World
from builders.gangs.dialects import DeclaredGang
from builders.gangs.manifests import gang
from builders.gangs.queue_jobs import queue_job, template
from builders.wait import WAIT_SECONDS, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]
ARBITRATOR = "arbitrator.incubator.k8s.io/v1alpha1"


@pytest.fixture(autouse=True)
def collected(world: World) -> None:
    """Objects owned by a job are deleted with it."""
    world.cluster.api_server.needs_controllers()


def pods_of(world: World, job: str) -> dict[str, JSON]:
    """Pods whose controller has this name, by name."""
    found = {}
    for (namespace, name), pod in world.cluster.pods.items():
        owners = pod["metadata"].get("ownerReferences") or ()
        if namespace == world.name and any(each.get("controller") and each["name"] == job for each in owners):
            found[name] = pod
    return found


def bound(world: World, job: str) -> dict[str, str]:
    """Nodes of its bound pods by pod."""
    return {name: node for name, pod in pods_of(world, job).items() if (node := node_of(pod))}


async def until_bound(world: World, job: str, count: int) -> None:
    await world.cluster.until(lambda: len(bound(world, job)) == count, f"{count} pods of {job} are bound")


async def waits(world: World, gang_id: str, *words: str) -> None:
    """Wait until the gang reports this pending reason."""

    def says() -> bool:
        found = world.cluster.gangs.get(gang_id)
        return found is not None and all(word in found.reason for word in words)

    await world.cluster.until(says, f"{gang_id} waits and says {words}")


async def status(world: World, job: str, holds: Callable[[JSON], bool]) -> JSON:
    """The status of a QueueJob, as soon as the condition holds."""
    path = f"/apis/{ARBITRATOR}/namespaces/{world.name}/queuejobs/{job}"
    found: JSON = {}

    async def as_wanted() -> bool:
        nonlocal found
        found = (await world.cluster.call("GET", path)).get("status", {})
        return holds(found)

    await eventually(as_wanted, lambda: f"the status of {job} is {found}", seconds=WAIT_SECONDS)
    return found


async def fail(world: World, *pods: str) -> None:
    """Let pods fail, as their kubelet would report; waits for the kubelet's own report first."""
    for name in pods:
        key = (world.name, name)

        def runs(key: tuple[str, str] = key) -> bool:
            return bool(world.cluster.pods[key].get("status", {}).get("phase") == "Running")

        await world.cluster.until(runs, f"{name} runs")
        path = f"/api/v1/namespaces/{world.name}/pods/{name}/status"
        await world.cluster.merge(path, {"status": {"phase": "Failed"}})


def job(world: World, name: str, replicas: int, minimum: int, **scheduling: Any) -> DeclaredGang:
    """A QueueJob with a node selector for the world's nodes."""
    scheduling["nodeSelector"] = {LABEL: world.name, **scheduling.get("nodeSelector", {})}
    written = queue_job(name, (replicas, template()), minimum=minimum, namespace=world.name, scheduling=scheduling)
    return DeclaredGang(f"kube-arbitrator/{world.name}/QueueJob.{name}", (written,), f"minAvailable: {minimum}")


async def test_a_queue_job_starts_whole_where_its_node_selector_lets_it_i1(world: World) -> None:
    await world.nodes(4)
    await world.nodes(2, disk="ssd")
    train = job(world, "train", 4, 3, nodeSelector={"disk": "ssd"})
    await world.declare(train)
    await waits(world, train.id, "2 of 3 members fit")
    assert bound(world, "train") == {}
    [new] = await world.nodes(1, disk="ssd")
    await until_bound(world, "train", 3)
    assert new in bound(world, "train").values()
    current = await status(world, "train", lambda current: current.get("running") == 3)
    assert (current["pending"], current["minAvailable"], current["started"]) == (1, 3, True)
    explained = await world.cluster.muster("explain", train.id)
    assert f"minAvailable: 3 (SchedulingSpec {world.name}/train)" in explained


async def test_a_failed_queue_job_is_recreated_and_starts_whole(world: World) -> None:
    await world.nodes(4)
    await world.declare(job(world, "train", 4, 3))
    await until_bound(world, "train", 4)
    await status(world, "train", lambda current: current.get("running") == 4)
    before = {pod["metadata"]["uid"] for pod in pods_of(world, "train").values()}
    await fail(world, "train-0-0")
    await status(world, "train", lambda current: (current.get("running"), current.get("failed")) == (4, 1))
    kept = before & {pod["metadata"]["uid"] for pod in pods_of(world, "train").values()}
    assert len(kept) == 3
    await fail(world, "train-0-1", "train-0-2")
    await status(world, "train", lambda current: (current.get("running"), current.get("incarnation")) == (4, 2))
    after = {pod["metadata"]["uid"] for pod in pods_of(world, "train").values()}
    assert (len(after), after & before) == (4, set())


async def test_a_lifecycle_crash_during_a_restart_is_completed_later(world: World) -> None:
    await world.nodes(4)
    await world.declare(job(world, "train", 4, 3))
    await until_bound(world, "train", 4)
    await status(world, "train", lambda current: current.get("running") == 4)
    before = {pod["metadata"]["uid"] for pod in pods_of(world, "train").values()}
    deletions = Requests("DELETE", f"/namespaces/{world.name}/pods/train-0-[0-3]")
    with world.cluster.faults.hold(deletions, let_pass=1) as held:
        await fail(world, "train-0-1", "train-0-2")
        await held.until(1)
        await world.cluster.stack.kill("lifecycle")
        held.drop()
    await world.cluster.stack.start(["lifecycle"])
    await status(world, "train", lambda current: (current.get("running"), current.get("incarnation")) == (4, 2))
    after = {pod["metadata"]["uid"] for pod in pods_of(world, "train").values()}
    assert (len(after), after & before) == (4, set())


async def test_a_preempted_queue_job_waits_and_restarts_whole(world: World) -> None:
    await world.nodes(4)
    await world.declare(low := job(world, "low", 4, 4))
    await until_bound(world, "low", 4)
    await status(world, "low", lambda current: current.get("running") == 4)
    urgent = gang("urgent").of(3).with_priority(10)
    await world.create(urgent)
    await world.bound(urgent)
    current = await status(world, "low", lambda current: (current.get("incarnation"), current.get("pending")) == (2, 4))
    assert current["running"] == 0
    await waits(world, low.id, "1 of 4 members fit")
    assert bound(world, "low") == {}
    await world.delete(urgent)
    await status(world, "low", lambda current: current.get("running") == 4)


async def test_a_scheduling_spec_without_owner_is_reported(world: World) -> None:
    await world.nodes(1)
    id_ = f"kube-arbitrator/{world.name}/stray"
    metadata = {"name": "stray", "namespace": world.name}
    stray = {"apiVersion": ARBITRATOR, "kind": "SchedulingSpec", "metadata": metadata, "spec": {"minAvailable": 2}}
    await world.declare(DeclaredGang(id_, (stray,), ""))
    words = "has no ownerReference with controller: true"

    def event_exists() -> bool:
        return any(words in event.get("note", "") for event in world.cluster.events_of(world.name, ["stray"]))

    await world.cluster.until(event_exists, f"an event says that it {words}")


async def test_contradictory_node_selectors_are_reported_on_the_pods(world: World) -> None:
    await world.nodes(4)
    written = queue_job(
        "train",
        (2, template(nodeSelector={"disk": "hdd"})),
        minimum=2,
        namespace=world.name,
        scheduling={"nodeSelector": {"disk": "ssd", LABEL: world.name}},
    )
    id_ = f"kube-arbitrator/{world.name}/QueueJob.train"
    await world.declare(DeclaredGang(id_, (written,), ""))
    await waits(world, id_, 'nodeSelector has "disk": "hdd"', 'has "ssd"')


async def test_pods_of_any_controller_join_its_scheduling_spec(world: World) -> None:
    """A Kubernetes Job whose SchedulingSpec is created after its pods."""
    await world.nodes(2)
    batch_job: JSON = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work", "namespace": world.name},
        "spec": {"parallelism": 3, "completions": 3, "template": template(schedulerName="muster", cpu="1")},
    }
    batch_job["spec"]["template"]["spec"]["nodeSelector"] = {"later": world.name}
    id_ = f"kube-arbitrator/{world.name}/Job.work"
    await world.declare(DeclaredGang(id_, (batch_job,), ""))
    await world.cluster.until(lambda: len(pods_of(world, "work")) == 3, "the Job has its pods")
    owner = next(iter(pods_of(world, "work").values()))["metadata"]["ownerReferences"]
    spec = {
        "apiVersion": ARBITRATOR,
        "kind": "SchedulingSpec",
        "metadata": {"name": "anything", "namespace": world.name, "ownerReferences": owner},
        "spec": {"minAvailable": 3, "nodeSelector": {LABEL: world.name}},
    }
    await world.cluster.apply(spec)
    await waits(world, id_, "0 of 3 members fit")
    await world.nodes(1, 1, later=world.name)
    await waits(world, id_, "2 of 3 members fit")
    assert bound(world, "work") == {}
    await world.nodes(1, later=world.name)
    await until_bound(world, "work", 3)


async def test_a_spec_created_first_makes_pods_wait_for_each_other(world: World) -> None:
    """Any object may be the controller; this one manages no pods."""
    await world.nodes(4)
    id_ = f"kube-arbitrator/{world.name}/ConfigMap.crd-job"
    controller = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "crd-job", "namespace": world.name}}
    await world.declare(DeclaredGang(id_, (controller,), ""))
    path = f"/api/v1/namespaces/{world.name}/configmaps/crd-job"
    uid = (await world.cluster.call("GET", path))["metadata"]["uid"]
    owner = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "crd-job", "uid": uid, "controller": True}]
    spec = {
        "apiVersion": ARBITRATOR,
        "kind": "SchedulingSpec",
        "metadata": {"name": "crd-job", "namespace": world.name, "ownerReferences": owner},
        "spec": {"minAvailable": 2},
    }
    await world.cluster.apply(spec)
    made = template(schedulerName="muster", nodeSelector={LABEL: world.name})["spec"]
    for number, words in ((0, "1 of 2 members"), (1, "")):
        metadata = {"name": f"task-{number}", "namespace": world.name, "ownerReferences": owner}
        await world.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})
        if words:
            await waits(world, id_, words)
            assert bound(world, "crd-job") == {}
    await until_bound(world, "crd-job", 2)
    explained = await world.cluster.explain(id_)
    assert list(explained.gang.terms) == [f"minAvailable: 2 (SchedulingSpec {world.name}/crd-job)"]
