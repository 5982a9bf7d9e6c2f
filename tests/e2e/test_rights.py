"""The services with exactly the rights that the chart gives them: nothing is refused, and nothing is given in vain.

Gangs of every kind, volumes, preemption, restarts, quota and QueueJobs go through a Muster of real processes. The API
server enforces RBAC and keeps what each service asked for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from builders.e2e.api_requests import is_used, refused, user_of, uses
from builders.e2e.cluster import CRDS, WAIT_SECONDS, Cluster, running_cluster
from builders.e2e.faults import Requests
from builders.e2e.observations import LABEL
from builders.e2e.sakkara_groups import group as sakkara_group
from builders.e2e.world import Scene
from builders.gangs.dialects import Written
from builders.gangs.queue_jobs import queue_job, template
from builders.gangs.workloads import gang, plain
from builders.wait import eventually
from muster.binding.v1 import binding_pb2, binding_pb2_grpc
from muster.clusterstate.v1 import clusterstate_pb2
from muster.localcluster.manifests import load_manifests
from muster.localcluster.rights import NAMESPACE, find_rights, read_rights
from muster.localcluster.stack import SERVICES
from muster.rpc.channel import open_channel

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]
ARBITRATOR = "arbitrator.incubator.k8s.io/v1alpha1"
WITHOUT_STATUS = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
"""Groups whose PodGroups have no subresource here, as in some clusters: their status is written all the same."""
LATER_LEADER = 2**62


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A Muster that reserves quota, in a cluster with CRDs of its own and of others."""
    async with running_cluster(tmp_path_factory.mktemp("rights"), quota=True, start=()) as cluster:
        for definition in load_manifests(CRDS):
            if definition.body["spec"]["group"] in WITHOUT_STATUS:
                path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition.name}"
                versions = [{**each, "subresources": {}} for each in definition.body["spec"]["versions"]]
                await cluster.merge(path, {"spec": {"versions": versions}})
        await cluster.begin()
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def new_scene(cluster: Cluster) -> AsyncIterator[Callable[[], Scene]]:
    """Makes parts of the cluster, as many as are asked for."""
    made: list[Scene] = []

    def make() -> Scene:
        made.append(Scene(cluster))
        return made[-1]

    yield make
    await cluster.stack.start()
    await asyncio.gather(*(scene.clear() for scene in made))


async def seen(cluster: Cluster, path: str, holds: Callable[[Any], object]) -> Any:
    """The object, as soon as it is so; None stands for one that is not there."""
    found: Any = None

    async def as_wanted() -> bool:
        nonlocal found
        answer = await cluster.try_call("GET", path)
        found = None if answer.status == 404 else msgspec.json.decode(answer.body)
        return bool(holds(found))

    await eventually(as_wanted, lambda: f"{path} is {found}", seconds=WAIT_SECONDS)
    return found


# -- what users do, each in a scene of its own


async def native_gang(scene: Scene) -> None:
    await scene.nodes(2)
    two = gang("two").of(2).declared_by("native")
    await scene.create(two)
    await scene.bound(two)
    path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{scene.name}/podgroups/two"
    await seen(scene.cluster, path, lambda found: found.get("status", {}).get("conditions"))


async def sakkara(scene: Scene) -> None:
    await scene.nodes(2)
    two = sakkara_group("two").of(2)
    await scene.create(two)
    await scene.bound(two)
    path = f"/api/v1/namespaces/{scene.name}/configmaps/two"
    await seen(scene.cluster, path, lambda found: found["data"].get("status") == "Bound")


async def volumes(scene: Scene) -> None:
    full, *_ = await scene.nodes(1, 1, 1)
    two = gang("two").of(2).with_claims(await scene.storage_class(refusedNodes=full))
    await scene.create(two)
    await scene.event(two, "could not be bound", f"no room on node '{full}'")
    await scene.bound(two)


async def preemption(scene: Scene) -> None:
    await scene.nodes(2)
    low, high = gang("low").of(2), gang("high").of(2).with_priority(10)
    await scene.create(low)
    await scene.bound(low)
    await scene.create(high)
    await scene.bound(high)


async def status_without_subresource(scene: Scene) -> None:
    await scene.nodes(2)
    two = gang("two").of(2).declared_by("koordinator")
    await scene.create(two)
    await scene.bound(two)
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{scene.name}/podgroups/two"
    await seen(scene.cluster, path, lambda found: found.get("status", {}).get("scheduled") == 2)


async def restart(scene: Scene) -> None:
    await scene.nodes(2)
    policy = [{"event": "Unschedulable", "action": "Restart"}]
    two = gang("two").of(1).needing(2).declared_by("kube-batch").declaring(policy=policy)
    await scene.define(two)
    await scene.create_job(two, "workers", 2)
    await scene.all_members_bound(two, 2)
    path = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{scene.name}/podgroups/two"
    await seen(scene.cluster, path, lambda found: found.get("status", {}).get("running") == 2)
    victim = next(name for namespace, name in scene.cluster.pods if namespace == scene.name)
    await scene.cluster.call("DELETE", f"/api/v1/namespaces/{scene.name}/pods/{victim}")
    await scene.event(two, "fewer than 2 of its pods ran: all")


async def quota(scene: Scene) -> None:
    cluster, namespace = scene.cluster, scene.name
    here = {"namespace": namespace}
    limits = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", **here}}
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await cluster.apply({**limits, "spec": {"hard": {"cpu": "8"}}})
    for dialect, version, field in (
        ("kube-batch", "scheduling.incubator.k8s.io/v1alpha1", "totalResources"),
        ("coscheduling", "scheduling.x-k8s.io/v1alpha1", "minResources"),
    ):
        group = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "kept", **here}}
        id_ = f"{dialect}/{namespace}/kept"
        await scene.declare(Written(id_, ({**group, "spec": {"minMember": 1, field: {"cpu": "2"}}},), ""))
        path = f"/apis/{version}/namespaces/{namespace}/podgroups/kept"
        await seen(cluster, path, lambda found: "QuotaReserved" in str(found.get("status")))
    await cluster.call("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/team")
    ledger = f"/api/v1/namespaces/{NAMESPACE}/configmaps/muster-quota.{namespace}"
    await seen(cluster, ledger, lambda found: found is None)


def job(scene: Scene, name: str, **labels: str) -> JSON:
    task = template(labels=labels, nodeSelector={LABEL: scene.name})
    return queue_job(name, (2, task), minimum=2, namespace=scene.name)


async def declare_job(scene: Scene, name: str) -> None:
    await scene.declare(Written(f"kube-arbitrator/{scene.name}/QueueJob.{name}", (job(scene, name),), ""))


async def told(scene: Scene, name: str, holds: Callable[[JSON], object]) -> None:
    """Wait until the status of a QueueJob says so."""
    path = f"/apis/{ARBITRATOR}/namespaces/{scene.name}/queuejobs/{name}"
    await seen(scene.cluster, path, lambda found: holds(found.get("status", {})))


async def queue_jobs(scene: Scene) -> None:
    cluster = scene.cluster
    await scene.nodes(2)
    await declare_job(scene, "train")
    await told(scene, "train", lambda status: status.get("running") == 2)
    changed = {**job(scene, "train", changed="yes")["spec"], "schedulingSpec": {"minAvailable": 1}}
    await cluster.merge(f"/apis/{ARBITRATOR}/namespaces/{scene.name}/queuejobs/train", {"spec": changed})
    await told(scene, "train", lambda status: (status.get("running"), status.get("incarnation")) == (2, 2))
    spec = f"/apis/{ARBITRATOR}/namespaces/{scene.name}/schedulingspecs/train"
    await seen(cluster, spec, lambda found: found["spec"]["minAvailable"] == 1)


async def pod_in_the_way(scene: Scene) -> None:
    """A QueueJob's pod has a name that is taken, which is told anew by each lifecycle that leads."""
    await scene.create(plain("clash-0").of(1))
    await declare_job(scene, "clash")
    await told(scene, "clash", lambda status: "Conflict" in str(status.get("conditions")))


ACTS = (
    native_gang,
    sakkara,
    volumes,
    preemption,
    status_without_subresource,
    restart,
    quota,
    queue_jobs,
    pod_in_the_way,
)

# -- what happens when others are in the way


async def told_again_by_the_next(cluster: Cluster) -> None:
    """Who leads next finds what was told before, and counts."""
    await cluster.stack.stop_one("lifecycle")
    await cluster.stack.start(["lifecycle"])

    def counted() -> bool:
        of_lifecycle = (
            each for each in cluster.events.values() if each.get("reportingController") == "muster-lifecycle"
        )
        return any((each.get("series") or {}).get("count", 1) > 1 for each in of_lifecycle)

    await cluster.until(counted, "an event of lifecycle is counted")


async def spec_that_is_not_seen(scene: Scene) -> None:
    """A SchedulingSpec has the name of a QueueJob, and no watch has told it yet."""
    cluster = scene.cluster
    metadata = {"name": "late", "namespace": scene.name}
    with cluster.faults.hold(Requests("GET", "/schedulingspecs")) as held:
        cluster.faults.break_watches()
        await held.until(2)
        spec = {"apiVersion": ARBITRATOR, "kind": "SchedulingSpec", "metadata": metadata, "spec": {}}
        await scene.declare(Written(f"kube-arbitrator/{scene.name}/late", (spec,), ""))
        await declare_job(scene, "late")
        await told(scene, "late", lambda status: "Conflict" in str(status.get("conditions")))


async def volume_of_another_node(scene: Scene) -> None:
    """Two pods share a claim whose volume is made on the first one's node: the second is refused, with the reason.

    No coordinator runs then: it would not ask for that.
    """
    nodes = await scene.nodes(1, 1)
    two = scene.here(gang("two").of(2).with_claims(await scene.storage_class()))
    await scene.define(two)
    pods = two.pods()
    pods[1]["spec"]["volumes"] = pods[0]["spec"]["volumes"]
    await scene.cluster.apply(*two.claims(0), *pods)
    bindings = []
    for pod, node in zip(pods, nodes, strict=True):
        name = pod["metadata"]["name"]
        made = await scene.cluster.call("GET", f"/api/v1/namespaces/{scene.name}/pods/{name}")
        uid = made["metadata"]["uid"]
        bindings.append(
            binding_pb2.PodBinding(uid=uid, namespace=scene.name, name=name, node=node, claims=[two.claim_name(0)])
        )
    scene.cluster.invariants.excuse(two.id)
    async with open_channel(scene.cluster.stack.addresses["binding"]) as channel:
        stub = binding_pb2_grpc.BindingServiceStub(channel)
        request = binding_pb2.BindRequest(leader_epoch=LATER_LEADER, group="by hand", pods=bindings)
        outcomes = {
            result.node or result.message: result.outcome
            async for answer in stub.Bind(request, timeout=WAIT_SECONDS)
            for result in answer.results
        }
        assert any("cannot be used on node" in said for said in outcomes), outcomes
        event = binding_pb2.Event(
            regarding=clusterstate_pb2.ObjectReference(
                api_version="v1", kind="Pod", namespace=scene.name, name="two-0", uid=bindings[0].uid
            ),
            type="Normal",
            reason="Twice",
            action="Telling",
            note="told twice",
        )
        written = binding_pb2.WriteRequest(leader_epoch=LATER_LEADER, events=[event, event])
        assert not (await stub.Write(written, timeout=WAIT_SECONDS)).failures
    await scene.cluster.stack.stop_one("binding")  # which writes its counts before it ends


async def test_nothing_is_refused_and_nothing_is_given_in_vain(
    cluster: Cluster, new_scene: Callable[[], Scene]
) -> None:
    async with asyncio.TaskGroup() as acts:
        for act in ACTS:
            acts.create_task(act(new_scene()), name=act.__name__)
    await told_again_by_the_next(cluster)
    await spec_that_is_not_seen(new_scene())
    await cluster.stack.stop_one("coordinator")
    await volume_of_another_node(new_scene())
    asked = await uses(cluster.session)

    assert refused(asked) == []
    rights = read_rights(find_rights())
    unused = [
        f"{service}: {right}"
        for service, granted in rights.items()
        for right in granted.each()
        if not is_used(right, service, asked)
    ]
    assert unused == [], "these rights can be taken out of deploy/helm/muster/files/rights"
    known = {user_of(service) for service in rights}
    assert {use.user for use in asked} == known, f"others of {SERVICES} have no access"


async def test_a_right_that_is_lacking_is_noticed(cluster: Cluster, new_scene: Callable[[], Scene]) -> None:
    """The test above can fail: an API server that takes away a right shows who lacks it."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/muster-binding"
    role = await cluster.call("GET", path)
    fewer = [rule for rule in role["rules"] if "pods/status" not in rule["resources"]]
    await cluster.merge(path, {"rules": fewer})
    await new_scene().create(gang("waiting").of(2), only=(0,))

    async def lacks() -> bool:
        found = refused(await uses(cluster.session))
        return any((use.user, use.resource) == (user_of("binding"), "pods/status") for use in found)

    await eventually(lacks, "binding is refused pods/status", seconds=WAIT_SECONDS)
    answers = cluster.faults.refusals.messages
    assert any('"pods/status"' in each for each in answers), "the answers tell it, too: a real API server has no record"
    await cluster.merge(path, {"rules": role["rules"]})
    await cluster.call("DELETE", "/muster-access")
