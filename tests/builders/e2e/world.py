"""One test's part of a cluster: its own namespaces and nodes, with the actions of end-to-end tests."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec.structs import replace

from builders.e2e.cluster import JSON, Cluster
from builders.e2e.observations import LABEL, Observations
from builders.gangs.dialects import DeclaredGang
from builders.gangs.manifests import Workload
from builders.kube.nodes import remove_nodes, untaint_nodes
from builders.wait import WAIT_SECONDS, eventually
from muster.gangs.facts import NodeFacts
from muster.localcluster.apiserver.provisioner import PROVISIONER
from muster.localcluster.kubelets.devices.cards import Cards
from muster.localcluster.kubelets.pod_lifecycle import Kubelets
from muster.localcluster.kubelets.simulated_nodes import SimulatedNode
from muster.rpc.channel import open_channel
from muster.rpc.subscription import BatchReceived, subscribe

_PODS_PER_NODE = 110
_DELETIONS_UNDER_WAY = 64


class World(Observations):
    """Creates workloads that use only nodes of this world, and deletes everything at the end."""

    def __init__(self, cluster: Cluster) -> None:
        # a random name avoids what an interrupted run left in a real cluster
        super().__init__(cluster, f"world-{secrets.token_hex(3)}")
        self._namespaces: set[str] = set()
        self._one_namespace = asyncio.Lock()
        self._workloads: dict[str, Workload] = {}
        self._jobs: list[tuple[str, str]] = []
        self._priority_classes: set[str] = set()
        self._declared: list[DeclaredGang] = []
        self._nodes: list[str] = []
        self._kubelets: list[Kubelets] = []
        self._storage_classes: list[str] = []
        self._csi_nodes: list[str] = []
        self._volumes: list[str] = []
        self._segments: list[str] = []
        self.removed: set[str] = set()
        """Nodes that were deleted."""

    # -- given

    async def nodes(
        self, *cpus: int, pods: int = _PODS_PER_NODE, gpus: int = 0, cards: Cards | None = None, **labels: str
    ) -> list[str]:
        """Create nodes with these CPUs and simulated kubelets; returns their names.

        Each has `gpus` GPUs as an extended resource, and `cards` as devices of dynamic resource allocation.
        """
        names = [f"{self.name}-n{cpu}-{len(self._nodes) + number}" for number, cpu in enumerate(cpus)]
        self._nodes += names
        extended = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        labels = {LABEL: self.name, **labels}
        like = SimulatedNode("", "10.0.0.1", memory="64Gi", pods=pods, labels=labels, extended=extended, cards=cards)
        shapes = [replace(like, name=name, cpu=str(cpu)) for name, cpu in zip(names, cpus, strict=True)]
        kubelets = Kubelets(self.cluster.session, shapes)
        self._kubelets.append(kubelets)
        await kubelets.start()
        await untaint_nodes(self.cluster.session, *names)
        await self.cluster.until(lambda: all(map(self.cluster.is_usable, names)), f"nodes {names} are ready")
        return names

    async def remove_nodes(self, *names: str) -> None:
        """Delete nodes; returns when they are observed to be gone."""
        self.removed.update(names)
        await remove_nodes(self.cluster.session, *names)
        await self.cluster.until(lambda: not self.cluster.nodes.keys() & set(names), f"nodes {names} are gone")

    async def storage_class(self, *, at_once: bool = False, **parameters: str) -> str:
        """Create a storage class of the local provisioner, with volumes bound at the first consumer or at once;
        returns its name. Parameters are those of the provisioner.
        """
        name = f"{self.name}-{len(self._storage_classes)}"
        self._storage_classes.append(name)
        body = {
            "provisioner": PROVISIONER,
            "volumeBindingMode": "Immediate" if at_once else "WaitForFirstConsumer",
        }
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        await self.cluster.apply({**kind, **body, "parameters": parameters})
        return name

    async def static_class(self) -> str:
        """Create a storage class without provisioner, for volumes of `local_volumes`; returns its name."""
        name = f"{self.name}-{len(self._storage_classes)}"
        self._storage_classes.append(name)
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        provisioner = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        await self.cluster.apply({**kind, **provisioner})
        return name

    async def local_volumes(self, storage_class: str, *nodes: str, size: str = "10Gi") -> list[str]:
        """Create a local volume on each of the nodes; returns their names."""
        made = []
        for node in nodes:
            name = f"{storage_class}-v{len(self._volumes)}"
            self._volumes.append(name)
            made.append(name)
            requirement = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
            spec = {
                "storageClassName": storage_class,
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"/mnt/{name}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}},
            }
            kind = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
            await self.cluster.apply({**kind, "spec": spec})
        return made

    async def volume_of(self, workload: Workload, number: int) -> str:
        """The volume to which the claim of one of its pods is bound."""
        return str((await self.claim(workload, number))["spec"]["volumeName"])

    async def reserved_volumes(self, storage_class: str) -> list[str]:
        """Volumes of the class that have a claim."""
        found = (await self.cluster.call("GET", "/api/v1/persistentvolumes"))["items"]
        of_class = [each for each in found if each["spec"].get("storageClassName") == storage_class]
        return [str(each["metadata"]["name"]) for each in of_class if each["spec"].get("claimRef")]

    async def attach_limits(self, **limits: int) -> None:
        """Limit the volumes of the local provisioner that may be attached to these nodes."""
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
        for node, count in limits.items():
            spec = {"drivers": [{"name": PROVISIONER, "nodeID": node, "allocatable": {"count": count}}]}
            if node in self._csi_nodes:
                await self.cluster.merge(f"/apis/storage.k8s.io/v1/csinodes/{node}", {"spec": spec})
            else:
                self._csi_nodes.append(node)
                await self.cluster.apply({**kind, "metadata": {"name": node}, "spec": spec})

    async def storage_capacity(self, storage_class: str, **capacities: str) -> None:
        """Publish or change the storage that the local provisioner has on these nodes."""
        if not self._segments:
            await self._make_namespace(self.name)
            driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": PROVISIONER}}
            await self.cluster.apply({**driver, "spec": {"storageCapacity": True}})
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity"}
        path = f"/apis/storage.k8s.io/v1/namespaces/{self.name}/csistoragecapacities"
        for node, capacity in capacities.items():
            name = f"{storage_class}-{node}"
            if name in self._segments:
                await self.cluster.merge(f"{path}/{name}", {"capacity": capacity})
                continue
            self._segments.append(name)
            topology = {"matchLabels": {"kubernetes.io/hostname": node}}
            segment = {**kind, "metadata": {"name": name, "namespace": self.name}, "nodeTopology": topology}
            await self.cluster.apply({**segment, "storageClassName": storage_class, "capacity": capacity})

    # -- when

    async def create(self, *workloads: Workload, only: tuple[int, ...] = ()) -> list[Workload]:
        """Create PodGroups and pods, one workload after the other; `only` these pods of each."""
        placed = [self.here(workload) for workload in workloads]
        for workload in placed:
            await self.define(workload)
            await self.add_pods(workload, *only)
        return placed

    async def define(self, workload: Workload) -> Workload:
        """Create the PodGroup alone, if the dialect has one."""
        workload = self._known(self.here(workload))
        await self._make_namespace(workload.namespace)
        if (definition := workload.definition()) is not None:
            await self.cluster.apply(definition)
        return workload

    async def add_pods(self, workload: Workload, *numbers: int) -> None:
        """Create pods of a workload, all of them if no number is given."""
        workload = self._known(self.here(workload))
        await self._prepare(workload)
        await self.cluster.apply(*workload.claims(*numbers), *workload.pods(*numbers))

    async def declare(self, *gangs: DeclaredGang) -> None:
        """Create the objects of all gangs concurrently."""
        self._declared += gangs
        for namespace in sorted({each["metadata"]["namespace"] for gang in gangs for each in gang.objects}):
            await self._make_namespace(namespace)
        for gang in gangs:
            pods = [(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in gang.pods]
            self.cluster.invariants.expect(gang.id, len(pods), pods)
        await asyncio.gather(*(self.cluster.apply(*gang.objects) for gang in gangs))

    async def create_job(self, workload: Workload, name: str, pods: int) -> None:
        """Create a Job with this number of the gang's pods, which the controller names."""
        workload = self.here(workload)
        await self._prepare(workload)
        self._jobs.append((workload.namespace, name))
        await self.cluster.apply(workload.job(name, pods))

    async def delete(self, workload: Workload) -> None:
        """Delete its PodGroup and pods; returns when they are gone."""
        workload = self.here(workload)
        self.cluster.invariants.forget(workload.id)
        if (definition := workload.definition()) is not None:
            await self.cluster.try_call("DELETE", _path(definition))
        await self.delete_pods(workload, *range(workload.size))
        for claim in workload.claims():
            await self.cluster.try_call("DELETE", _path(claim))
        self._workloads.pop(workload.id, None)

    async def delete_pods(self, workload: Workload, *numbers: int) -> None:
        """Delete these pods; returns when they are gone."""
        workload = self.here(workload)
        pods = workload.pods(*numbers)
        doomed = {key: pod["metadata"]["uid"] for key, pod in self.cluster.pods.items()}
        turns = asyncio.Semaphore(_DELETIONS_UNDER_WAY)  # each request has its own deadline

        async def delete(pod: JSON) -> None:
            async with turns:
                await self.cluster.try_call("DELETE", _path(pod), _AT_ONCE)

        await asyncio.gather(*map(delete, pods))
        keys = [(workload.namespace, pod["metadata"]["name"]) for pod in pods]

        def gone() -> bool:
            present = self.cluster.pods
            return all(key not in present or present[key]["metadata"]["uid"] != doomed.get(key) for key in keys)

        await self.cluster.until(gone, f"pods {keys} are gone")

    @contextlib.asynccontextmanager
    async def dying(self, workload: Workload, *numbers: int) -> AsyncIterator[None]:
        """Keep these pods terminating until the end of the block, by a finalizer.

        The kubelets of the world are stopped, so running pods keep running until then.
        """
        await self._stop_kubelets()
        pods = self.here(workload).pods(*numbers)
        for pod in pods:
            await self.cluster.merge(_path(pod), {"metadata": {"finalizers": ["example.com/held"]}})
            await self.cluster.call("DELETE", _path(pod), _AT_ONCE)
        yield
        for pod in pods:
            await self.cluster.merge(_path(pod), {"metadata": {"finalizers": None}})

    async def undefine(self, workload: Workload) -> None:
        """Delete its PodGroup alone."""
        definition = self.here(workload).definition()
        assert definition is not None, "there is no PodGroup to delete"
        await self.cluster.call("DELETE", _path(definition))

    async def bind_by_hand(self, workload: Workload, seats: dict[int, str]) -> None:
        """Create pods and bind them as another scheduler would: node by number."""
        await self.add_pods(workload, *seats)
        placed = self.here(workload)
        self.cluster.invariants.excuse(placed.id)
        for number, node in seats.items():
            await bind_by_hand(self.cluster, placed.namespace, placed.pod_name(number), node)

    async def ungate(self, workload: Workload, *numbers: int) -> None:
        """Remove the scheduling gates of pods."""
        for pod in self.here(workload).pods(*numbers):
            await self.cluster.merge(_path(pod), {"spec": {"schedulingGates": []}})

    async def claim(self, workload: Workload, number: int) -> JSON:
        """The current claim of one of its pods."""
        workload = self.here(workload)
        return await self.named_claim(workload, workload.claim_name(number))

    async def named_claim(self, workload: Workload, name: str) -> JSON:
        """A current claim in its namespace."""
        namespace = self.here(workload).namespace
        return await self.cluster.call("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")

    async def node_of_volume(self, workload: Workload, number: int) -> str:
        """The node affinity of the volume of one of its pods."""
        name = (await self.claim(workload, number))["spec"]["volumeName"]
        volume = await self.cluster.call("GET", f"/api/v1/persistentvolumes/{name}")
        [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        [requirement] = term["matchExpressions"]
        [node] = requirement["values"]
        return str(node)

    async def end_pods(self, workload: Workload, *numbers: int) -> None:
        """Let pods succeed, as their kubelet would report; waits for the kubelet's own report first."""
        pods = self.here(workload).pods(*numbers)
        await self.running(workload, *(pod["metadata"]["name"] for pod in pods))
        for pod in pods:
            await self.cluster.merge(_path(pod) + "/status", {"status": {"phase": "Succeeded"}})

    async def touch_status(self, workload: Workload, number: int, message: str) -> None:
        """Change a pod in a way that is irrelevant to scheduling."""
        [pod] = self.here(workload).pods(number)
        await self.cluster.merge(_path(pod) + "/status", {"status": {"message": message}})

    async def budget(self, workload: Workload, *, least: int) -> None:
        """Create a PodDisruptionBudget with this minAvailable; returns when its status is current."""
        workload = self.here(workload)
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": workload.name, "namespace": workload.namespace},
            "spec": {"minAvailable": least, "selector": {"matchLabels": workload.labels}},
        }
        await self.cluster.apply(budget)
        path = f"/apis/policy/v1/namespaces/{workload.namespace}/poddisruptionbudgets/{workload.name}"

        async def all_healthy() -> bool:
            status = (await self.cluster.call("GET", path)).get("status", {})
            return bool(status.get("currentHealthy", 0) == workload.size)

        await eventually(all_healthy, f"{workload.size} healthy pods in {path}", seconds=WAIT_SECONDS)

    async def cordon(self, node: str) -> None:
        """Cordon a node; returns when cluster-state has published it."""
        await self.cluster.merge(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        await self.until_published([node], lambda facts: facts.unschedulable)

    async def until_published(
        self,
        nodes: Iterable[str],
        condition: Callable[[NodeFacts], bool] = lambda facts: facts.ready and not facts.taints,
    ) -> None:
        """Wait until cluster-state has published all nodes in this condition, by default usable: it may learn later
        than the test what the API server has.
        """
        missing = set(nodes)
        channel = open_channel(self.cluster.stack.addresses["cluster-state"])
        async with channel, asyncio.timeout(WAIT_SECONDS), aclosing(subscribe(channel, "test")) as steps:
            async for step in steps:
                if isinstance(step, BatchReceived):
                    missing -= {facts.name for facts in step.batch.nodes if condition(facts)}
                if not missing:
                    return

    async def edit_minimum(self, workload: Workload, minimum: Any) -> None:
        """Edit spec.minMember of its PodGroup."""
        definition = self.here(workload).definition()
        assert definition is not None, "only PodGroups have a minimum to edit"
        await self.cluster.merge(_path(definition), {"spec": {"minMember": minimum}})

    async def annotate(self, workload: Workload, **annotations: str) -> None:
        """Set Koordinator's annotations on all its pods."""
        changed = Workload("", annotations={}).annotated(**annotations).annotations
        pods = self.here(workload).pods()
        await asyncio.gather(*(self.cluster.merge(_path(pod), {"metadata": {"annotations": changed}}) for pod in pods))

    async def unmark(self, workload: Workload, annotation: str) -> None:
        """Remove an annotation from all its pods."""
        patch = {"metadata": {"annotations": {annotation: None}}}
        await asyncio.gather(*(self.cluster.merge(_path(pod), patch) for pod in self.here(workload).pods()))

    # -- the end

    async def clear(self) -> None:
        """Delete everything; returns when the coordinator has forgotten it too, so that worlds do not interfere."""
        for gang in self._workloads.values():  # check now: gangs that start during the deletions do not complete
            self.cluster.invariants.forget(gang.id)
        await asyncio.gather(*map(self._delete_job, self._jobs))
        await asyncio.gather(*map(self.delete, list(self._workloads.values())))
        await asyncio.gather(*map(self._undeclare, self._declared))
        ids = {f"/{namespace}/" for namespace in self._namespaces}
        await self.cluster.until(
            lambda: not any(mark in gang for gang in self.cluster.gangs for mark in ids), "all gangs are forgotten"
        )
        await self._stop_kubelets()
        await remove_nodes(self.cluster.session, *self._nodes)
        for name in self._storage_classes:
            await self.cluster.try_call("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{name}")
        for name in self._volumes:
            await self.cluster.try_call("DELETE", f"/api/v1/persistentvolumes/{name}")
        if self._segments:
            path = f"/apis/storage.k8s.io/v1/namespaces/{self.name}/csistoragecapacities"
            for name in self._segments:
                await self.cluster.try_call("DELETE", f"{path}/{name}")
            await self.cluster.try_call("DELETE", f"/apis/storage.k8s.io/v1/csidrivers/{PROVISIONER}")
        for name in self._csi_nodes:
            await self.cluster.try_call("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{name}")

    async def _undeclare(self, gang: DeclaredGang) -> None:
        self.cluster.invariants.forget(gang.id)
        for each in gang.objects:
            await self.cluster.try_call("DELETE", _path(each), _WITH_PODS)

    async def _delete_job(self, job: tuple[str, str]) -> None:
        namespace, name = job
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
        await self.cluster.try_call("DELETE", path, query={"propagationPolicy": "Background"})

    async def _stop_kubelets(self) -> None:
        for kubelets in self._kubelets:
            await kubelets.stop()
        self._kubelets.clear()

    def _known(self, workload: Workload) -> Workload:
        if workload.id not in self._workloads:
            self._workloads[workload.id] = workload
            if workload.dialect != "plain":
                pods = [(workload.namespace, workload.pod_name(number)) for number in range(workload.size)]
                self.cluster.invariants.expect(workload.id, workload.needed, pods, workload.group)
        return workload

    async def _prepare(self, workload: Workload) -> None:
        """Create the objects that its pods depend on."""
        await self._make_namespace(workload.namespace)
        if workload.priority is not None:
            await self.cluster.apply(_priority_class(workload))
            if self.cluster.api_server.is_real and workload.priority_class not in self._priority_classes:
                await eventually(partial(self._admits, workload), f"{workload.priority_class} is known")
                self._priority_classes.add(workload.priority_class)

    async def _admits(self, workload: Workload) -> bool:
        """Whether the API server admits a pod of the workload: it knows a priority class soon after its creation."""
        [pod, *_] = workload.pods(0)
        path = f"/api/v1/namespaces/{workload.namespace}/pods"
        return (await self.cluster.try_call("POST", path, pod, query={"dryRun": "All"})).status != 403

    async def _make_namespace(self, name: str) -> None:
        async with self._one_namespace:  # concurrent callers wait for the one that creates it
            if name in self._namespaces:
                return
            self._namespaces.add(name)
            await self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def bind_by_hand(cluster: Cluster, namespace: str, pod: str, node: str) -> None:
    """Bind a pod as another scheduler."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", body)


_AT_ONCE: JSON = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_WITH_PODS: JSON = {**_AT_ONCE, "propagationPolicy": "Background"}
_PLURALS = {
    "CompositePodGroup": "compositepodgroups",
    "ConfigMap": "configmaps",
    "Job": "jobs",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodGroup": "podgroups",
    "QueueJob": "queuejobs",
    "SchedulingSpec": "schedulingspecs",
    "Workload": "workloads",
}


def _path(manifest: JSON) -> str:
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{metadata['namespace']}/{_PLURALS[manifest['kind']]}/{metadata['name']}"


def _priority_class(workload: Workload) -> JSON:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": workload.priority_class},
        "value": workload.priority,
        "preemptionPolicy": "PreemptLowerPriority" if workload.preempts else "Never",
    }
