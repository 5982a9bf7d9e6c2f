"""The services run with exactly the chart's permissions: no request is denied, and every permission is used.

Gangs of every kind, volumes, preemption, restarts, quota and QueueJobs run through real processes. The API server
enforces RBAC and records the requests of each service.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from builders.console.services import events
from builders.e2e.api_requests import is_used, refused, user_of, uses
from builders.e2e.autoscaler import Autoscaler, install
from builders.e2e.cluster import CRDS, Cluster, running_cluster
from builders.e2e.devices import gpus, run_claims_with_finalizer, with_claims
from builders.e2e.faults import Requests
from builders.e2e.observations import LABEL
from builders.e2e.world import World
from builders.gangs.dialects import DeclaredGang
from builders.gangs.kueue_workloads import WORKLOAD_KIND, admitted
from builders.gangs.manifests import gang, plain
from builders.gangs.queue_jobs import queue_job, template
from builders.gangs.sakkara_manifests import group as sakkara_group
from builders.gangs.volcano_jobs import JOB_KIND, JOB_VERSION, group_name, pod_group_of, volcano_job
from builders.wait import WAIT_SECONDS, eventually
from muster.binding.v1 import binding_pb2, binding_pb2_grpc
from muster.clusterstate.v1 import clusterstate_pb2
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.dialects.kueue_workload import ASKED_FOR, WORKLOAD
from muster.dialects.muster_annotations import PROVISIONING_REQUEST
from muster.localcluster.kubelets.devices.cards import CardKind, Cards
from muster.localcluster.manifests import load_manifests
from muster.localcluster.permissions import NAMESPACE, find_permissions, read_permissions
from muster.localcluster.stack import SERVICES
from muster.rpc.channel import open_channel

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]
ARBITRATOR = "arbitrator.incubator.k8s.io/v1alpha1"
WITHOUT_STATUS = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
"""API groups whose PodGroups have no status subresource here, as in some clusters: their status is written
nevertheless.
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A Muster with both webhooks, in a cluster with its own CRDs and those of others."""
    settings = {
        "MUSTER_LIFECYCLE_PROVISIONING_REQUESTS": "true",
        "MUSTER_CLUSTER_STATE_KUEUE_WORKLOADS": "true",
        "MUSTER_CONSOLE_AUTHENTICATION": "token",
    }
    directory = tmp_path_factory.mktemp("permissions")
    options: dict[str, Any] = {"quota": True, "device_webhook": True, "console": True, "service_environment": settings}
    async with running_cluster(directory, start=(), **options) as cluster:
        await install(cluster)
        await cluster.apply(WORKLOAD_KIND)
        for definition in load_manifests(CRDS):
            if definition.body["spec"]["group"] in WITHOUT_STATUS:
                path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition.name}"
                versions = [{**each, "subresources": {}} for each in definition.body["spec"]["versions"]]
                await cluster.merge(path, {"spec": {"versions": versions}})
        await cluster.begin()
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def new_world(cluster: Cluster) -> AsyncIterator[Callable[[], World]]:
    """Creates worlds on demand."""
    made: list[World] = []

    def make() -> World:
        made.append(World(cluster))
        return made[-1]

    yield make
    await cluster.stack.start()
    await asyncio.gather(*(world.clear() for world in made))


async def wait_for_object(cluster: Cluster, path: str, holds: Callable[[Any], object]) -> Any:
    """The object, as soon as the condition holds; None if it does not exist."""
    found: Any = None

    async def as_wanted() -> bool:
        nonlocal found
        answer = await cluster.try_call("GET", path)
        found = None if answer.status == 404 else msgspec.json.decode(answer.body)
        return bool(holds(found))

    await eventually(as_wanted, lambda: f"{path} is {found}", seconds=WAIT_SECONDS)
    return found


# -- actions of users, each in its own world


async def native_gang(world: World) -> None:
    await world.nodes(2)
    two = gang("two").of(2).declared_by("native")
    await world.create(two)
    await world.bound(two)
    path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{world.name}/podgroups/two"
    await wait_for_object(world.cluster, path, lambda found: found.get("status", {}).get("conditions"))


async def composite_group(world: World) -> None:
    """One of two PodGroups is enough, and fits."""
    await world.nodes(2)
    templates = [{"name": "part", "schedulingPolicy": {"gang": {"minCount": 2}}}]
    metadata = {"name": "server", "namespace": world.name}
    reference = {"workloadName": "server", "templateName": "part"}
    workload = {"kind": "Workload", "metadata": metadata, "spec": {"podGroupTemplates": templates}}
    spec = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}, "workloadRef": reference}
    composite = {"kind": "CompositePodGroup", "metadata": metadata, "spec": spec}
    objects = (
        {"apiVersion": "scheduling.k8s.io/v1beta1", **workload},
        {"apiVersion": "scheduling.k8s.io/v1alpha3", **composite},
    )
    await world.declare(DeclaredGang(f"native/{world.name}/server", objects, ""))
    parent = {"parentCompositePodGroupName": "server", "workloadRef": reference}
    small, large = (gang(name).declared_by("native").declaring(**parent) for name in ("small", "large"))
    await world.create(large.of(3), small.of(2))
    await world.bound(small.of(2))
    path = f"/apis/scheduling.k8s.io/v1alpha3/namespaces/{world.name}/compositepodgroups/server"
    scheduled = "1 group is scheduled, as many as it needs"
    await wait_for_object(world.cluster, path, lambda found: scheduled in str(found.get("status")))


async def sakkara(world: World) -> None:
    await world.nodes(2)
    two = sakkara_group("two").of(2)
    await world.create(two)
    await world.bound(two)
    path = f"/api/v1/namespaces/{world.name}/configmaps/two"
    await wait_for_object(world.cluster, path, lambda found: found["data"].get("status") == "Bound")


async def provisioning(world: World) -> None:
    await world.nodes(1)
    two = gang("two").of(2).marked({PROVISIONING_REQUEST: "true"})
    await world.create(two)
    autoscaler = Autoscaler(world, two)
    await autoscaler.remove(await autoscaler.request(pods=2))  # the next one takes over the template
    await autoscaler.provision(await autoscaler.request(pods=2), 1)
    await world.bound(two)
    await autoscaler.gone()


async def volumes(world: World) -> None:
    full, *_ = await world.nodes(1, 1, 1)
    two = gang("two").of(2).with_claims(await world.storage_class(refusedNodes=full))
    await world.create(two)
    await world.event(two, "could not be bound", f"node '{full}' has no free storage")
    await world.bound(two)


async def static_volumes(world: World) -> None:
    nodes = await world.nodes(1, 1)
    local = await world.static_class()
    await world.local_volumes(local, *nodes)
    two = gang("two").of(2).with_claims(local)
    await world.create(two)
    await world.bound(two)


async def preemption(world: World) -> None:
    await world.nodes(2)
    low, high = gang("low").of(2), gang("high").of(2).with_priority(10)
    await world.create(low)
    await world.bound(low)
    await world.create(high)
    await world.bound(high)


async def status_without_subresource(world: World) -> None:
    await world.nodes(2)
    two = gang("two").of(2).declared_by("koordinator")
    await world.create(two)
    await world.bound(two)
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{world.name}/podgroups/two"
    await wait_for_object(world.cluster, path, lambda found: found.get("status", {}).get("scheduled") == 2)


async def restart(world: World) -> None:
    await world.nodes(2)
    policy = [{"event": "Unschedulable", "action": "Restart"}]
    two = gang("two").of(1).needing(2).declared_by("kube-batch").declaring(policy=policy)
    await world.define(two)
    await world.create_job(two, "workers", 2)
    await world.all_members_bound(two, 2)
    path = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{world.name}/podgroups/two"
    await wait_for_object(world.cluster, path, lambda found: found.get("status", {}).get("running") == 2)
    victim = next(name for namespace, name in world.cluster.pods if namespace == world.name)
    await world.cluster.call("DELETE", f"/api/v1/namespaces/{world.name}/pods/{victim}")
    await world.event(two, "fewer than 2 of its pods were running: all")


async def volcano(world: World) -> None:
    await world.cluster.apply(JOB_KIND)
    manifest = volcano_job("lm", world.name, "muster", {}, worker=2)
    await world.declare(DeclaredGang(f"none/{world.name}/lm", (manifest,), ""))
    job = await world.cluster.call("GET", f"/apis/{JOB_VERSION}/namespaces/{world.name}/jobs/lm")
    group = pod_group_of(job)
    await world.declare(DeclaredGang(f"kube-batch/{world.name}/{group_name(job)}", (group,), ""))
    path = f"/apis/{group['apiVersion']}/namespaces/{world.name}/podgroups/{group_name(job)}"
    await wait_for_object(world.cluster, path, lambda found: found.get("status", {}).get("phase") == "Inqueue")


async def kueue_workload(world: World) -> None:
    await world.nodes(2)
    pods = world.here(plain("two").of(2).marked({ASKED_FOR: "true", WORKLOAD: "two"})).pods()
    paths = [f"/api/v1/namespaces/{world.name}/pods/{pod['metadata']['name']}" for pod in pods]
    await world.declare(DeclaredGang(f"kueue-workload/{world.name}/two", tuple(pods), ""))
    await wait_for_object(world.cluster, paths[0], lambda found: "GangNotDeclared" in str(found["status"]))
    await world.cluster.apply(admitted("two", world.name, 1, 1))
    for path in paths:
        await wait_for_object(world.cluster, path, lambda found: found["spec"].get("nodeName"))


async def device_webhook(world: World) -> None:
    """Two claims are allocated one after the other, so that the ledger of their devices is created and changed."""
    await world.nodes(2, cards=Cards(CardKind.GPU, 2))
    for name in ("first", "second"):
        claiming = await with_claims(world, gang(name).of(1), gpus(world))
        await world.create(claiming)
        await world.bound(claiming)


async def quota(world: World) -> None:
    cluster, namespace = world.cluster, world.name
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
        await world.declare(DeclaredGang(id_, ({**group, "spec": {"minMember": 1, field: {"cpu": "2"}}},), ""))
        path = f"/apis/{version}/namespaces/{namespace}/podgroups/kept"
        await wait_for_object(cluster, path, lambda found: "QuotaReserved" in str(found.get("status")))
    await cluster.call("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/team")
    ledger = f"/api/v1/namespaces/{NAMESPACE}/configmaps/muster-quota.{namespace}"
    await wait_for_object(cluster, ledger, lambda found: found is None)


async def refused_pods(world: World) -> None:
    """A quota refuses a pod of a gang, and its reason names the quota."""
    cluster, here = world.cluster, {"namespace": world.name}
    train = world.here(gang("train").of(2).declared_by("lightweight"))
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.name}})
    limits = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", **here}}
    await cluster.apply({**limits, "spec": {"hard": {"pods": "1"}}})
    path = f"/api/v1/namespaces/{world.name}/resourcequotas/team"
    await wait_for_object(cluster, path, lambda found: "used" in found.get("status", {}))
    await world.create_job(train, "train", 2)
    await world.waits(train, "its controller cannot create more pods: Job train: ", "exceeded quota: team")


def job(world: World, name: str, **labels: str) -> JSON:
    task = template(labels=labels, nodeSelector={LABEL: world.name})
    return queue_job(name, (2, task), minimum=2, namespace=world.name)


async def declare_job(world: World, name: str) -> None:
    await world.declare(DeclaredGang(f"kube-arbitrator/{world.name}/QueueJob.{name}", (job(world, name),), ""))


async def wait_for_status(world: World, name: str, holds: Callable[[JSON], object]) -> None:
    """Wait until the status of a QueueJob satisfies the condition."""
    path = f"/apis/{ARBITRATOR}/namespaces/{world.name}/queuejobs/{name}"
    await wait_for_object(world.cluster, path, lambda found: holds(found.get("status", {})))


async def queue_jobs(world: World) -> None:
    cluster = world.cluster
    await world.nodes(2)
    await declare_job(world, "train")
    await wait_for_status(world, "train", lambda status: status.get("running") == 2)
    changed = {**job(world, "train", changed="yes")["spec"], "schedulingSpec": {"minAvailable": 1}}
    await cluster.merge(f"/apis/{ARBITRATOR}/namespaces/{world.name}/queuejobs/train", {"spec": changed})
    await wait_for_status(world, "train", lambda status: (status.get("running"), status.get("incarnation")) == (2, 2))
    spec = f"/apis/{ARBITRATOR}/namespaces/{world.name}/schedulingspecs/train"
    await wait_for_object(cluster, spec, lambda found: found["spec"]["minAvailable"] == 1)


async def reader_of_the_console(world: World) -> None:
    """The console reviews a token and what its owner may read."""
    stack = world.cluster.stack
    url = stack.console_url.rstrip("/")
    async with events(url, "feeds=gangs", stack.identities.tokens["binding"]) as page:
        assert (await page.until("session"))["user"] == user_of("binding")


async def pod_in_the_way(world: World) -> None:
    """A QueueJob's pod has a name that is taken; each lifecycle that leads reports it again."""
    await world.create(plain("clash-0").of(1))
    await declare_job(world, "clash")
    await wait_for_status(world, "clash", lambda status: "Conflict" in str(status.get("conditions")))


ACTS = (
    native_gang,
    composite_group,
    sakkara,
    provisioning,
    volumes,
    static_volumes,
    preemption,
    status_without_subresource,
    restart,
    volcano,
    kueue_workload,
    quota,
    refused_pods,
    device_webhook,
    queue_jobs,
    reader_of_the_console,
    pod_in_the_way,
)

# -- conflicts with other actors


async def told_again_by_the_next(cluster: Cluster) -> None:
    """The next leader finds the earlier events, and counts on."""
    await cluster.stack.stop_one("lifecycle")
    await cluster.stack.start(["lifecycle"])

    def counted() -> bool:
        of_lifecycle = (
            each for each in cluster.events.values() if each.get("reportingController") == "muster-lifecycle"
        )
        return any((each.get("series") or {}).get("count", 1) > 1 for each in of_lifecycle)

    await cluster.until(counted, "an event of lifecycle is counted")


async def claims_with_finalizer(world: World) -> None:
    """Claims are allocated by one write each. No claims of others are allocated meanwhile."""
    await world.nodes(*[8] * 9, cards=Cards(CardKind.GPU, 8))
    await run_claims_with_finalizer(world)


async def spec_that_is_not_seen(world: World) -> None:
    """A SchedulingSpec has the name of a QueueJob, and no watch has reported it yet."""
    cluster = world.cluster
    metadata = {"name": "late", "namespace": world.name}
    with cluster.faults.hold(Requests("GET", "/schedulingspecs")) as held:
        cluster.faults.break_watches()
        await held.until(2)
        spec = {"apiVersion": ARBITRATOR, "kind": "SchedulingSpec", "metadata": metadata, "spec": {}}
        await world.declare(DeclaredGang(f"kube-arbitrator/{world.name}/late", (spec,), ""))
        await declare_job(world, "late")
        await wait_for_status(world, "late", lambda status: "Conflict" in str(status.get("conditions")))


async def devices_of_a_claim(world: World, leader_epoch: int) -> None:
    """A ResourceClaim is allocated. No coordinator runs then: `leader_epoch` is that of the last leader."""
    [node] = await world.nodes(1)
    one = world.here(gang("one").of(1))
    metadata = {"name": "gpu", "namespace": world.name}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {}}}
    await world.define(one)
    await world.cluster.apply(claim, *one.pods())
    pod_path = f"/api/v1/namespaces/{world.name}/pods/{one.pod_name(0)}"
    claim_path = f"/apis/resource.k8s.io/v1/namespaces/{world.name}/resourceclaims/gpu"
    pod, made = [await world.cluster.call("GET", path) for path in (pod_path, claim_path)]
    allocation = msgspec.json.encode({"devices": {"results": []}})
    binding = binding_pb2.PodBinding(
        uid=pod["metadata"]["uid"],
        namespace=world.name,
        name=one.pod_name(0),
        node=node,
        device_claims=[binding_pb2.DeviceClaim(name="gpu", uid=made["metadata"]["uid"], allocation=allocation)],
    )
    world.cluster.invariants.excuse(one.id)
    async with open_channel(world.cluster.stack.addresses["binding"]) as channel:
        stub = binding_pb2_grpc.BindingServiceStub(channel)
        request = binding_pb2.BindRequest(leader_epoch=leader_epoch, group="by hand", pods=[binding])
        [result] = [each async for answer in stub.Bind(request, timeout=WAIT_SECONDS) for each in answer.results]
    assert result.outcome == binding_pb2.BindResult.OUTCOME_BOUND, result


async def devices_of_a_gated_pod(world: World, leader_epoch: int) -> None:
    """The claim for extended resources of a pod that cannot be bound is created and deleted. No coordinator runs then:
    `leader_epoch` is that of the last leader.
    """
    [node] = await world.nodes(1)
    one = world.here(gang("one").of(1).with_spec(schedulingGates=[{"name": "example.com/wait"}]))
    await world.define(one)
    await world.cluster.apply(*one.pods())
    pod = await world.cluster.call("GET", f"/api/v1/namespaces/{world.name}/pods/{one.pod_name(0)}")
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    binding = binding_pb2.PodBinding(
        uid=pod["metadata"]["uid"],
        namespace=world.name,
        name=one.pod_name(0),
        node=node,
        extended_claim=binding_pb2.ExtendedClaim(
            spec=msgspec.json.encode(spec),
            allocation=msgspec.json.encode({"devices": {"results": [result]}}),
            mappings=[binding_pb2.RequestMapping(container="main", resource="example.com/gpu", request="gpu")],
        ),
    )
    async with open_channel(world.cluster.stack.addresses["binding"]) as channel:
        stub = binding_pb2_grpc.BindingServiceStub(channel)
        request = binding_pb2.BindRequest(leader_epoch=leader_epoch, group="by hand", pods=[binding])
        [answer] = [each async for answer in stub.Bind(request, timeout=WAIT_SECONDS) for each in answer.results]
    assert answer.outcome == binding_pb2.BindResult.OUTCOME_FAILED, answer
    found = await world.cluster.call("GET", f"/apis/resource.k8s.io/v1/namespaces/{world.name}/resourceclaims")
    assert found["items"] == []


async def devices_of_a_pod_group(world: World, leader_epoch: int) -> None:
    """A claim of a PodGroup is deallocated, of which no pod is bound. No coordinator runs then: `leader_epoch` is that
    of the last leader.
    """
    metadata = {"name": "gpu", "namespace": world.name}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {}}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "idle", "namespace": world.name},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        },
    }
    await world.define(world.here(gang("one").of(1)))
    await world.cluster.apply(claim, group)
    group_path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{world.name}/podgroups/idle"
    claim_path = f"/apis/resource.k8s.io/v1/namespaces/{world.name}/resourceclaims/gpu"
    uid = (await world.cluster.call("GET", group_path))["metadata"]["uid"]
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "idle", "uid": uid}
    status = {"allocation": {"devices": {"results": []}}, "reservedFor": [consumer]}
    await world.cluster.merge(f"{claim_path}/status", {"status": status})
    made = (await world.cluster.call("GET", claim_path))["metadata"]
    stale = binding_pb2.StaleClaim(
        name="gpu",
        uid=made["uid"],
        resource_version=made["resourceVersion"],
        pod=binding_pb2.PodName(uid="gone", namespace=world.name, name="gone"),
        pod_groups=[uid],
    )
    async with open_channel(world.cluster.stack.addresses["binding"]) as channel:
        stub = binding_pb2_grpc.BindingServiceStub(channel)
        request = binding_pb2.DeallocateRequest(leader_epoch=leader_epoch, gang="by hand", claims=[stale])
        [result] = (await stub.Deallocate(request, timeout=WAIT_SECONDS)).results
    assert result.outcome == binding_pb2.DeallocateResult.OUTCOME_DEALLOCATED, result


async def volume_of_another_node(world: World, leader_epoch: int) -> None:
    """Two pods share a claim; its volume is provisioned for the first, and the second is rejected with the reason.

    No coordinator runs then: it would not request that. `leader_epoch` is that of the last leader.
    """
    nodes = await world.nodes(1, 1)
    two = world.here(gang("two").of(2).with_claims(await world.storage_class()))
    await world.define(two)
    pods = two.pods()
    pods[1]["spec"]["volumes"] = pods[0]["spec"]["volumes"]
    await world.cluster.apply(*two.claims(0), *pods)
    bindings = []
    for pod, node in zip(pods, nodes, strict=True):
        name = pod["metadata"]["name"]
        made = await world.cluster.call("GET", f"/api/v1/namespaces/{world.name}/pods/{name}")
        uid = made["metadata"]["uid"]
        bindings.append(
            binding_pb2.PodBinding(uid=uid, namespace=world.name, name=name, node=node, claims=[two.claim_name(0)])
        )
    world.cluster.invariants.excuse(two.id)
    async with open_channel(world.cluster.stack.addresses["binding"]) as channel:
        stub = binding_pb2_grpc.BindingServiceStub(channel)
        request = binding_pb2.BindRequest(leader_epoch=leader_epoch, group="by hand", pods=bindings)
        outcomes = {
            result.node or result.message: result.outcome
            async for answer in stub.Bind(request, timeout=WAIT_SECONDS)
            for result in answer.results
        }
        assert any("cannot be used on node" in text for text in outcomes), outcomes
        event = binding_pb2.Event(
            regarding=clusterstate_pb2.ObjectReference(
                api_version="v1", kind="Pod", namespace=world.name, name="two-0", uid=bindings[0].uid
            ),
            type="Normal",
            reason="Twice",
            action="Telling",
            note="told twice",
        )
        written = binding_pb2.WriteRequest(leader_epoch=leader_epoch, events=[event, event])
        assert not (await stub.Write(written, timeout=WAIT_SECONDS)).failures
    await world.cluster.stack.stop_one("binding")  # it writes its counts before it ends


async def test_no_request_is_denied_and_every_permission_is_used(
    cluster: Cluster, new_world: Callable[[], World]
) -> None:
    async with asyncio.TaskGroup() as acts:
        for act in ACTS:
            acts.create_task(act(new_world()), name=act.__name__)
    await told_again_by_the_next(cluster)
    await spec_that_is_not_seen(new_world())
    await claims_with_finalizer(new_world())
    async with open_channel(cluster.stack.addresses["coordinator"]) as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        leader = await stub.Leader(coordinator_pb2.LeaderRequest(), timeout=WAIT_SECONDS)
    await cluster.stack.stop_one("coordinator")
    await devices_of_a_claim(new_world(), leader.epoch)
    await devices_of_a_gated_pod(new_world(), leader.epoch)
    await devices_of_a_pod_group(new_world(), leader.epoch)
    await volume_of_another_node(new_world(), leader.epoch)
    asked = await uses(cluster.session)

    assert refused(asked) == []
    permissions = read_permissions(find_permissions())
    unused = [
        f"{service}: {permission}"
        for service, granted in permissions.items()
        for permission in granted.each()
        if not is_used(permission, service, asked)
    ]
    assert unused == [], "these permissions can be taken out of deploy/helm/muster/files/permissions"
    known = {user_of(service) for service in permissions}
    assert {use.user for use in asked} == known, f"others of {SERVICES} have no access"


async def test_a_missing_permission_is_detected(cluster: Cluster, new_world: Callable[[], World]) -> None:
    """Shows that the test above can fail: a permission is removed, and the denied service is found."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/muster-binding"
    role = await cluster.call("GET", path)
    fewer = [rule for rule in role["rules"] if "pods/status" not in rule["resources"]]
    await cluster.merge(path, {"rules": fewer})
    await new_world().create(gang("waiting").of(2), only=(0,))

    async def lacks() -> bool:
        found = refused(await uses(cluster.session))
        return any((use.user, use.resource) == (user_of("binding"), "pods/status") for use in found)

    await eventually(lacks, "binding is refused pods/status", seconds=WAIT_SECONDS)
    answers = cluster.faults.refusals.messages
    assert any('"pods/status"' in each for each in answers), "the answers tell it, too: a real API server has no record"
    await cluster.merge(path, {"rules": role["rules"]})
    await cluster.call("DELETE", "/muster-access")
