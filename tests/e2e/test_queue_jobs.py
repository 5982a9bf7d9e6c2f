"""kube-arbitrator end to end: QueueJobs from their pods to their end, and jobs of any other controller."""

from collections.abc import Callable
from typing import Any

import pytest

from builders.e2e.cluster import WAIT_SECONDS, node_of
from builders.e2e.faults import Requests
from builders.e2e.observations import LABEL
from builders.e2e.world import Scene
from builders.gangs.dialects import Written
from builders.gangs.queue_jobs import queue_job, template
from builders.gangs.workloads import gang
from builders.wait import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]
ARBITRATOR = "arbitrator.incubator.k8s.io/v1alpha1"


@pytest.fixture(autouse=True)
def collected(scene: Scene) -> None:
    """What a job owned goes with it."""
    scene.cluster.api_server.needs_controllers()


def pods_of(scene: Scene, job: str) -> dict[str, JSON]:
    """Pods of which the controller has this name, by their names."""
    found = {}
    for (namespace, name), pod in scene.cluster.pods.items():
        owners = pod["metadata"].get("ownerReferences") or ()
        if namespace == scene.name and any(each.get("controller") and each["name"] == job for each in owners):
            found[name] = pod
    return found


def bound(scene: Scene, job: str) -> dict[str, str]:
    """Node by pod, of those of its pods that are bound."""
    return {name: node for name, pod in pods_of(scene, job).items() if (node := node_of(pod))}


async def until_bound(scene: Scene, job: str, count: int) -> None:
    await scene.cluster.until(lambda: len(bound(scene, job)) == count, f"{count} pods of {job} are bound")


async def waits(scene: Scene, gang_id: str, *words: str) -> None:
    """Wait until the gang says this of why it waits."""

    def says() -> bool:
        found = scene.cluster.gangs.get(gang_id)
        return found is not None and all(word in found.reason for word in words)

    await scene.cluster.until(says, f"{gang_id} waits and says {words}")


async def status(scene: Scene, job: str, holds: Callable[[JSON], bool]) -> JSON:
    """The status of a QueueJob, as soon as it is so."""
    path = f"/apis/{ARBITRATOR}/namespaces/{scene.name}/queuejobs/{job}"
    found: JSON = {}

    async def as_wanted() -> bool:
        nonlocal found
        found = (await scene.cluster.call("GET", path)).get("status", {})
        return holds(found)

    await eventually(as_wanted, lambda: f"the status of {job} is {found}", seconds=WAIT_SECONDS)
    return found


async def fail(scene: Scene, *pods: str) -> None:
    """Pods end badly, as their kubelet would say, which has its say first."""
    for name in pods:
        key = (scene.name, name)

        def runs(key: tuple[str, str] = key) -> bool:
            return bool(scene.cluster.pods[key].get("status", {}).get("phase") == "Running")

        await scene.cluster.until(runs, f"{name} runs")
        path = f"/api/v1/namespaces/{scene.name}/pods/{name}/status"
        await scene.cluster.merge(path, {"status": {"phase": "Failed"}})


def job(scene: Scene, name: str, replicas: int, minimum: int, **scheduling: Any) -> Written:
    """A QueueJob on the scene's nodes, which itself says that they must be those."""
    scheduling["nodeSelector"] = {LABEL: scene.name, **scheduling.get("nodeSelector", {})}
    written = queue_job(name, (replicas, template()), minimum=minimum, namespace=scene.name, scheduling=scheduling)
    return Written(f"kube-arbitrator/{scene.name}/QueueJob.{name}", (written,), f"minAvailable: {minimum}")


async def test_a_queue_job_starts_whole_where_its_node_selector_lets_it_i1(scene: Scene) -> None:
    await scene.nodes(4)
    await scene.nodes(2, disk="ssd")
    train = job(scene, "train", 4, 3, nodeSelector={"disk": "ssd"})
    await scene.declare(train)
    await waits(scene, train.id, "2 of 3 members fit")
    assert bound(scene, "train") == {}
    [new] = await scene.nodes(1, disk="ssd")
    await until_bound(scene, "train", 3)
    assert new in bound(scene, "train").values()
    told = await status(scene, "train", lambda told: told.get("running") == 3)
    assert (told["pending"], told["minAvailable"], told["started"]) == (1, 3, True)
    explained = await scene.cluster.muster("explain", train.id)
    assert f"minAvailable: 3 (SchedulingSpec {scene.name}/train)" in explained


async def test_a_queue_job_that_breaks_is_made_anew_and_starts_whole_again(scene: Scene) -> None:
    await scene.nodes(4)
    await scene.declare(job(scene, "train", 4, 3))
    await until_bound(scene, "train", 4)
    await status(scene, "train", lambda told: told.get("running") == 4)
    before = {pod["metadata"]["uid"] for pod in pods_of(scene, "train").values()}
    await fail(scene, "train-0-0")
    await status(scene, "train", lambda told: (told.get("running"), told.get("failed")) == (4, 1))
    kept = before & {pod["metadata"]["uid"] for pod in pods_of(scene, "train").values()}
    assert len(kept) == 3
    await fail(scene, "train-0-1", "train-0-2")
    await status(scene, "train", lambda told: (told.get("running"), told.get("incarnation")) == (4, 2))
    after = {pod["metadata"]["uid"] for pod in pods_of(scene, "train").values()}
    assert (len(after), after & before) == (4, set())


async def test_lifecycle_dies_in_the_middle_of_making_a_job_anew_and_ends_it_when_it_is_back(scene: Scene) -> None:
    await scene.nodes(4)
    await scene.declare(job(scene, "train", 4, 3))
    await until_bound(scene, "train", 4)
    await status(scene, "train", lambda told: told.get("running") == 4)
    before = {pod["metadata"]["uid"] for pod in pods_of(scene, "train").values()}
    deletions = Requests("DELETE", f"/namespaces/{scene.name}/pods/train-0-[0-3]")
    with scene.cluster.faults.hold(deletions, let_pass=1) as held:
        await fail(scene, "train-0-1", "train-0-2")
        await held.until(1)
        await scene.cluster.stack.kill("lifecycle")
        held.drop()
    await scene.cluster.stack.start(["lifecycle"])
    await status(scene, "train", lambda told: (told.get("running"), told.get("incarnation")) == (4, 2))
    after = {pod["metadata"]["uid"] for pod in pods_of(scene, "train").values()}
    assert (len(after), after & before) == (4, set())


async def test_a_queue_job_that_is_preempted_waits_whole_and_starts_whole_again(scene: Scene) -> None:
    await scene.nodes(4)
    await scene.declare(low := job(scene, "low", 4, 4))
    await until_bound(scene, "low", 4)
    await status(scene, "low", lambda told: told.get("running") == 4)
    urgent = gang("urgent").of(3).with_priority(10)
    await scene.create(urgent)
    await scene.bound(urgent)
    told = await status(scene, "low", lambda told: (told.get("incarnation"), told.get("pending")) == (2, 4))
    assert told["running"] == 0
    await waits(scene, low.id, "1 of 4 members fit")
    assert bound(scene, "low") == {}
    await scene.delete(urgent)
    await status(scene, "low", lambda told: told.get("running") == 4)


async def test_a_spec_that_is_nobodys_says_so(scene: Scene) -> None:
    await scene.nodes(1)
    id_ = f"kube-arbitrator/{scene.name}/stray"
    metadata = {"name": "stray", "namespace": scene.name}
    stray = {"apiVersion": ARBITRATOR, "kind": "SchedulingSpec", "metadata": metadata, "spec": {"minAvailable": 2}}
    await scene.declare(Written(id_, (stray,), ""))
    words = "has no ownerReference with controller: true"

    def said() -> bool:
        return any(words in event.get("note", "") for event in scene.cluster.events_of(scene.name, ["stray"]))

    await scene.cluster.until(said, f"an event says that it {words}")


async def test_a_queue_job_with_a_clash_of_node_selectors_says_so_on_its_pods(scene: Scene) -> None:
    await scene.nodes(4)
    written = queue_job(
        "train",
        (2, template(nodeSelector={"disk": "hdd"})),
        minimum=2,
        namespace=scene.name,
        scheduling={"nodeSelector": {"disk": "ssd", LABEL: scene.name}},
    )
    id_ = f"kube-arbitrator/{scene.name}/QueueJob.train"
    await scene.declare(Written(id_, (written,), ""))
    await waits(scene, id_, 'nodeSelector has "disk": "hdd"', 'has "ssd"')


async def test_pods_of_any_controller_are_a_job_with_its_scheduling_spec(scene: Scene) -> None:
    """A Job of Kubernetes', whose SchedulingSpec comes after its pods."""
    await scene.nodes(2)
    batch_job: JSON = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work", "namespace": scene.name},
        "spec": {"parallelism": 3, "completions": 3, "template": template(schedulerName="muster", cpu="1")},
    }
    batch_job["spec"]["template"]["spec"]["nodeSelector"] = {"later": scene.name}
    id_ = f"kube-arbitrator/{scene.name}/Job.work"
    await scene.declare(Written(id_, (batch_job,), ""))
    await scene.cluster.until(lambda: len(pods_of(scene, "work")) == 3, "the Job has its pods")
    owner = next(iter(pods_of(scene, "work").values()))["metadata"]["ownerReferences"]
    spec = {
        "apiVersion": ARBITRATOR,
        "kind": "SchedulingSpec",
        "metadata": {"name": "anything", "namespace": scene.name, "ownerReferences": owner},
        "spec": {"minAvailable": 3, "nodeSelector": {LABEL: scene.name}},
    }
    await scene.cluster.apply(spec)
    await waits(scene, id_, "0 of 3 members fit")
    await scene.nodes(1, 1, later=scene.name)
    await waits(scene, id_, "2 of 3 members fit")
    assert bound(scene, "work") == {}
    await scene.nodes(1, later=scene.name)
    await until_bound(scene, "work", 3)


async def test_a_spec_that_comes_first_makes_its_controllers_pods_wait_for_one_another(scene: Scene) -> None:
    """Any object may be the controller; here it is one that does nothing for its pods."""
    await scene.nodes(4)
    id_ = f"kube-arbitrator/{scene.name}/ConfigMap.crd-job"
    controller = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "crd-job", "namespace": scene.name}}
    await scene.declare(Written(id_, (controller,), ""))
    path = f"/api/v1/namespaces/{scene.name}/configmaps/crd-job"
    uid = (await scene.cluster.call("GET", path))["metadata"]["uid"]
    owner = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "crd-job", "uid": uid, "controller": True}]
    spec = {
        "apiVersion": ARBITRATOR,
        "kind": "SchedulingSpec",
        "metadata": {"name": "crd-job", "namespace": scene.name, "ownerReferences": owner},
        "spec": {"minAvailable": 2},
    }
    await scene.cluster.apply(spec)
    made = template(schedulerName="muster", nodeSelector={LABEL: scene.name})["spec"]
    for number, words in ((0, "1 of 2 members"), (1, "")):
        metadata = {"name": f"task-{number}", "namespace": scene.name, "ownerReferences": owner}
        await scene.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})
        if words:
            await waits(scene, id_, words)
            assert bound(scene, "crd-job") == {}
    await until_bound(scene, "crd-job", 2)
    explained = await scene.cluster.explain(id_)
    assert list(explained.gang.terms) == [f"minAvailable: 2 (SchedulingSpec {scene.name}/crd-job)"]
