"""One test's part of a cluster: its own namespaces and nodes, and the words in which end-to-end tests are told."""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from builders.cluster import JSON, WAIT_SECONDS, Cluster, node_of
from builders.machines import remove_nodes, untaint_nodes
from builders.workloads import Workload
from muster.coordinator.v1 import coordinator_pb2
from muster.coordinator.v1.coordinator_pb2 import Phase
from muster.localcluster.kubelets.fleet import Kubelets
from muster.localcluster.kubelets.shapes import NodeShape

WAITING = (Phase.PHASE_GATHERING, Phase.PHASE_QUEUED, Phase.PHASE_WAITING)
LABEL = "muster.dev/scene"
_PODS_PER_NODE = 110


class Scene:
    """What is created here uses only nodes made here, and is cleared away at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"scene-{secrets.token_hex(3)}"  # what an interrupted run left in a real cluster is not met again
        self._namespaces: set[str] = set()
        self._workloads: dict[str, Workload] = {}
        self._jobs: list[tuple[str, str]] = []
        self._nodes: list[str] = []
        self._kubelets: list[Kubelets] = []
        self.removed: set[str] = set()
        """Nodes that were deleted."""

    # -- given

    async def nodes(self, *cpus: int, pods: int = _PODS_PER_NODE, **labels: str) -> list[str]:
        """Nodes of so many cpus each, with simulated kubelets; returns their names."""
        names = [f"{self.name}-n{cpu}-{len(self._nodes) + number}" for number, cpu in enumerate(cpus)]
        self._nodes += names
        shapes = [
            NodeShape(name, "10.0.0.1", cpu=str(cpu), memory="64Gi", pods=pods, labels={LABEL: self.name, **labels})
            for name, cpu in zip(names, cpus, strict=True)
        ]
        kubelets = Kubelets(self.cluster.session, shapes)
        self._kubelets.append(kubelets)
        await kubelets.start()
        await untaint_nodes(self.cluster.session, *names)
        await self.cluster.until(lambda: all(map(self.cluster.is_usable, names)), f"nodes {names} are ready")
        return names

    async def remove_nodes(self, *names: str) -> None:
        """Delete nodes; returns when they are seen to be gone."""
        self.removed.update(names)
        await remove_nodes(self.cluster.session, *names)
        await self.cluster.until(lambda: not self.cluster.nodes.keys() & set(names), f"nodes {names} are gone")

    def namespace(self, name: str) -> str:
        """A further namespace of this scene."""
        return f"{self.name}-{name}"

    def here(self, workload: Workload) -> Workload:
        """The workload as it will be created: in this scene's namespace unless it has one, on this scene's nodes."""
        placed = workload.in_namespace(self.name) if workload.namespace == "default" else workload
        return placed.on_nodes(**{LABEL: self.name})

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
        """Create pods of a workload, all if none are named."""
        workload = self._known(self.here(workload))
        await self._make_namespace(workload.namespace)
        if workload.priority is not None:
            await self.cluster.apply(_priority_class(workload.priority))
        await self.cluster.apply(*workload.pods(*numbers))

    async def create_job(self, workload: Workload, name: str, pods: int) -> None:
        """Create a Job that makes so many of the gang's pods, under names of its own."""
        workload = self.here(workload)
        await self._make_namespace(workload.namespace)
        self._jobs.append((workload.namespace, name))
        await self.cluster.apply(workload.job(name, pods))

    async def delete(self, workload: Workload) -> None:
        """Delete its PodGroup and pods; returns when they are gone."""
        workload = self.here(workload)
        self.cluster.invariants.forget(workload.id)
        if (definition := workload.definition()) is not None:
            await self.cluster.try_call("DELETE", _path(definition))
        await self.delete_pods(workload, *range(workload.size))
        self._workloads.pop(workload.id, None)

    async def delete_pods(self, workload: Workload, *numbers: int) -> None:
        """Delete these pods; returns when they are gone."""
        workload = self.here(workload)
        pods = workload.pods(*numbers)
        doomed = {key: pod["metadata"]["uid"] for key, pod in self.cluster.pods.items()}
        await asyncio.gather(*(self.cluster.try_call("DELETE", _path(pod), _AT_ONCE) for pod in pods))
        keys = [(workload.namespace, pod["metadata"]["name"]) for pod in pods]

        def gone() -> bool:
            present = self.cluster.pods
            return all(key not in present or present[key]["metadata"]["uid"] != doomed.get(key) for key in keys)

        await self.cluster.until(gone, f"pods {keys} are gone")

    @contextlib.asynccontextmanager
    async def dying(self, workload: Workload, *numbers: int) -> AsyncIterator[None]:
        """These pods are being deleted, and are gone only after the end of the block: a finalizer holds them."""
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
        """Take the scheduling gates away from pods."""
        for pod in self.here(workload).pods(*numbers):
            await self.cluster.merge(_path(pod), {"spec": {"schedulingGates": []}})

    async def end_pods(self, workload: Workload, *numbers: int) -> None:
        """Pods end well, as their kubelet would say."""
        for pod in self.here(workload).pods(*numbers):
            await self.cluster.merge(_path(pod) + "/status", {"status": {"phase": "Succeeded"}})

    async def touch_status(self, workload: Workload, number: int, message: str) -> None:
        """Something that concerns nobody happens to a pod."""
        [pod] = self.here(workload).pods(number)
        await self.cluster.merge(_path(pod) + "/status", {"status": {"message": message}})

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
        """Take an annotation off all its pods."""
        patch = {"metadata": {"annotations": {annotation: None}}}
        await asyncio.gather(*(self.cluster.merge(_path(pod), patch) for pod in self.here(workload).pods()))

    # -- then

    def bound_pods(self, workload: Workload) -> dict[str, str]:
        """Node by pod name, of those that are bound."""
        workload = self.here(workload)
        nodes = {
            workload.pod_name(number): node_of(
                self.cluster.pods.get((workload.namespace, workload.pod_name(number)), _NONE)
            )
            for number in range(workload.size)
        }
        return {pod: node for pod, node in nodes.items() if node}

    def per_node(self, *workloads: Workload) -> Counter[str]:
        """How many of their pods are bound to each node."""
        return Counter(node for workload in workloads for node in self.bound_pods(workload).values())

    async def bound(self, *workloads: Workload, count: int | None = None, seconds: float = WAIT_SECONDS) -> None:
        """Wait until all pods (or so many) of each are bound."""
        for workload in workloads:
            await self._bound(workload, workload.size if count is None else count, seconds)

    async def _bound(self, workload: Workload, count: int, seconds: float) -> None:
        what = f"{count} pods of {workload.name} bound"
        await self.cluster.until(lambda: len(self.bound_pods(workload)) >= count, what, seconds=seconds)

    async def satisfied(self, workload: Workload, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the coordinator says that it has started."""
        id_ = self.here(workload).id

        def is_satisfied() -> bool:
            gang = self.cluster.gangs.get(id_)
            return gang is not None and gang.phase == Phase.PHASE_SATISFIED

        await self.cluster.until(is_satisfied, f"{id_} is satisfied", seconds=seconds)

    async def phase(self, workload: Workload, phase: str, *, seconds: float = WAIT_SECONDS) -> coordinator_pb2.Gang:
        """Wait until the coordinator says that the gang is in this phase, by its name in `muster gangs`."""
        id_, wanted = self.here(workload).id, Phase.Value(f"PHASE_{phase.upper()}")
        gangs = self.cluster.gangs
        await self.cluster.until(
            lambda: id_ in gangs and gangs[id_].phase == wanted, f"{id_} is {phase}", seconds=seconds
        )
        return gangs[id_]

    async def minimum(self, workload: Workload, minimum: int) -> None:
        """Wait until the coordinator knows that so many must start together."""
        id_, gangs = self.here(workload).id, self.cluster.gangs
        await self.cluster.until(lambda: id_ in gangs and gangs[id_].minimum == minimum, f"{id_} needs {minimum}")

    async def waits(self, workload: Workload, *saying: str, seconds: float = WAIT_SECONDS) -> coordinator_pb2.Gang:
        """Wait until the gang waits with a reason that says this, tried if it is complete; nothing is bound."""
        id_ = self.here(workload).id

        def settled() -> bool:
            gang = self.cluster.gangs.get(id_)
            return gang is not None and gang.phase in WAITING and all(words in gang.reason for words in saying)

        await self.cluster.until(settled, f"{id_} waits, saying {saying}", seconds=seconds)
        if self.cluster.gangs[id_].phase == Phase.PHASE_QUEUED:
            await self.tried(workload, seconds=seconds)
        assert self.bound_pods(workload) == {}, f"pods of {id_} are bound: {self.bound_pods(workload)}"
        return self.cluster.gangs[id_]

    async def holds(self, workload: Workload, seats: int) -> coordinator_pb2.ExplainResponse:
        """Wait until so many of its pods have a reservation and none is bound; what `muster explain` knows then."""
        id_ = self.here(workload).id
        version = -1
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if id_ in self.cluster.gangs:
                    answer = await self.cluster.explain(id_)
                    if sum(bool(member.reserved_node) for member in answer.members) == seats:
                        assert self.bound_pods(workload) == {}
                        return answer
                version = await self.cluster.picture.newer_than(version)

    async def tried(self, workload: Workload, *, more_than: int = 0, seconds: float = WAIT_SECONDS) -> int:
        """Wait until placement was asked for it more than so many times; returns how many times."""
        id_ = self.here(workload).id
        async with asyncio.timeout(seconds):
            while (answer := await self.cluster.explain(id_)).attempts <= more_than:
                with contextlib.suppress(TimeoutError):  # a try that changes nothing is not told
                    await asyncio.wait_for(self.cluster.picture.newer_than(self.cluster.picture.version), 0.1)
        return answer.attempts

    async def event(self, workload: Workload, *saying: str, kind: str = "Warning") -> JSON:
        """Wait for an event about one of its pods or its PodGroup that says this."""
        workload = self.here(workload)
        names = [workload.name, *(workload.pod_name(number) for number in range(workload.size))]
        found: list[JSON] = []

        def there() -> bool:
            found[:] = [
                event
                for event in self.cluster.events_of(workload.namespace, names)
                if event["type"] == kind and all(words in _note(event) for words in saying)
            ]
            return bool(found)

        await self.cluster.until(there, f"a {kind} event of {workload.id} that says {saying}")
        return found[0]

    async def unschedulable(self, workload: Workload, *saying: str) -> None:
        """Wait until every pod of it that exists has PodScheduled=False, reason Unschedulable, and says this (I10)."""
        workload = self.here(workload)
        keys = {(workload.namespace, workload.pod_name(number)) for number in range(workload.size)}

        def all_say() -> bool:
            pods = [pod for key, pod in self.cluster.pods.items() if key in keys]
            return bool(pods) and all(_says_unschedulable(pod, saying) for pod in pods)

        await self.cluster.until(all_say, f"all pods of {workload.id} say Unschedulable and {saying}")

    # -- the end

    async def clear(self) -> None:
        """Delete everything; returns when the coordinator has forgotten it too, so that scenes do not meet."""
        for gang in self._workloads.values():  # judged now: what starts while others go does not end
            self.cluster.invariants.forget(gang.id)
        await asyncio.gather(*map(self._delete_job, self._jobs))
        await asyncio.gather(*map(self.delete, list(self._workloads.values())))
        ids = {f"/{namespace}/" for namespace in self._namespaces}
        await self.cluster.until(
            lambda: not any(mark in gang for gang in self.cluster.gangs for mark in ids), "all gangs are forgotten"
        )
        await self._stop_kubelets()
        await remove_nodes(self.cluster.session, *self._nodes)

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

    async def _make_namespace(self, name: str) -> None:
        if name not in self._namespaces:
            self._namespaces.add(name)
            await self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def bind_by_hand(cluster: Cluster, namespace: str, pod: str, node: str) -> None:
    """What another scheduler does."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", body)


_NONE: JSON = {"spec": {}}
_AT_ONCE: JSON = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_PLURALS = {"Pod": "pods", "PodGroup": "podgroups"}


def _path(manifest: JSON) -> str:
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{metadata['namespace']}/{_PLURALS[manifest['kind']]}/{metadata['name']}"


def _note(event: JSON) -> str:
    return str(event.get("note") or event.get("message") or "")


def _says_unschedulable(pod: JSON, saying: tuple[str, ...]) -> bool:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled":
            message = condition.get("message", "")
            return (
                condition["status"] == "False"
                and condition.get("reason") == "Unschedulable"
                and all(words in message for words in saying)
            )
    return False


def _priority_class(value: int) -> JSON:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"priority-{value}"},
        "value": value,
    }
