"""Observations of one test's part of a cluster, awaited on reports of the API, etcd and the coordinator."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

from builders.e2e.cluster import JSON, Cluster, node_of
from builders.gangs.manifests import Workload
from builders.wait import WAIT_SECONDS
from muster.coordinator.v1 import coordinator_pb2
from muster.coordinator.v1.coordinator_pb2 import Phase
from muster.coordinator.v1.record_pb2 import GangRecord

WAITING = (Phase.PHASE_GATHERING, Phase.PHASE_QUEUED, Phase.PHASE_WAITING)
LABEL = "muster.dev/world"
"""Label on every node of a world, with its name."""
_NO_POD: JSON = {"spec": {}}


class Observations:
    """Observes the workloads of one world."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def namespace(self, name: str) -> str:
        """Another namespace of this world."""
        return f"{self.name}-{name}"

    def here(self, workload: Workload) -> Workload:
        """The workload as it will be created: in this world's namespace unless it has one, on this world's nodes."""
        placed = workload.in_namespace(self.name) if workload.namespace == "default" else workload
        if placed.dialect == "native":
            self.cluster.api_server.needs_native()
        if placed.dialect == "native" and not placed.version:
            placed = placed.of_version(self.cluster.api_server.native_versions[0])
        return placed.on_nodes(**{LABEL: self.name})

    def bound_pods(self, workload: Workload) -> dict[str, str]:
        """Node by pod name, of those that are bound."""
        workload = self.here(workload)
        nodes = {
            workload.pod_name(number): node_of(
                self.cluster.pods.get((workload.namespace, workload.pod_name(number)), _NO_POD)
            )
            for number in range(workload.size)
        }
        return {pod: node for pod, node in nodes.items() if node}

    def uids(self, *workloads: Workload) -> set[str]:
        """UIDs of all their pods that exist and are not terminating."""
        placed = [self.here(workload) for workload in workloads]
        keys = [(each.namespace, each.pod_name(number)) for each in placed for number in range(each.size)]
        pods = [self.cluster.pods[key]["metadata"] for key in keys if key in self.cluster.pods]
        return {pod["uid"] for pod in pods if "deletionTimestamp" not in pod}

    def per_node(self, *workloads: Workload) -> Counter[str]:
        """Number of their pods bound to each node."""
        return Counter(node for workload in workloads for node in self.bound_pods(workload).values())

    async def bound(self, *workloads: Workload, count: int | None = None, seconds: float = WAIT_SECONDS) -> None:
        """Wait until all pods (or `count`) of each are bound."""
        for workload in workloads:
            await self._bound(workload, workload.size if count is None else count, seconds)

    async def _bound(self, workload: Workload, count: int, seconds: float) -> None:
        what = f"{count} pods of {workload.name} bound"
        await self.cluster.until(lambda: len(self.bound_pods(workload)) >= count, what, seconds=seconds)

    async def one_bound(self, *workloads: Workload) -> Workload:
        """Wait until all pods of one of them are bound; returns it."""

        def started() -> Workload | None:
            return next((each for each in workloads if len(self.bound_pods(each)) == each.size), None)

        await self.cluster.until(started, f"one of {len(workloads)} gangs is bound")
        found = started()
        assert found is not None
        return found

    async def all_members_bound(self, workload: Workload, count: int, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the coordinator counts `count` members, all bound, also for pods named by a controller."""
        id_, gangs = self.here(workload).id, self.cluster.gangs
        await self.cluster.until(
            lambda: id_ in gangs and gangs[id_].bound == gangs[id_].members == count,
            f"{count} of {id_} are bound",
            seconds=seconds,
        )

    async def running(self, workload: Workload, *pods: str) -> None:
        """Wait until the bound pods among these run."""
        namespace = self.here(workload).namespace

        def all_run() -> bool:
            found = [self.cluster.pods.get((namespace, pod), _NO_POD) for pod in pods]
            return all(pod.get("status", {}).get("phase") != "Pending" for pod in found if node_of(pod))

        await self.cluster.until(all_run, f"bound pods among {pods} run")

    async def ended(self, workload: Workload, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until all its pods have succeeded."""
        workload = self.here(workload)
        keys = [(workload.namespace, workload.pod_name(number)) for number in range(workload.size)]

        def all_ended() -> bool:
            pods = [self.cluster.pods.get(key, _NO_POD) for key in keys]
            return all(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)

        await self.cluster.until(all_ended, f"all pods of {workload.id} have ended", seconds=seconds)

    async def satisfied(self, workload: Workload, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the coordinator reports the gang as satisfied."""
        id_ = self.here(workload).id

        def is_satisfied() -> bool:
            gang = self.cluster.gangs.get(id_)
            return gang is not None and gang.phase == Phase.PHASE_SATISFIED

        await self.cluster.until(is_satisfied, f"{id_} is satisfied", seconds=seconds)

    async def phase(self, workload: Workload, phase: str, *, seconds: float = WAIT_SECONDS) -> coordinator_pb2.Gang:
        """Wait until the coordinator reports this phase, by its name in `muster gangs`."""
        id_, wanted = self.here(workload).id, Phase.Value(f"PHASE_{phase.upper()}")
        gangs = self.cluster.gangs
        await self.cluster.until(
            lambda: id_ in gangs and gangs[id_].phase == wanted, f"{id_} is {phase}", seconds=seconds
        )
        return gangs[id_]

    async def recorded(self, workload: Workload) -> None:
        """Wait until its record says that it has started, so that no write of it is pending."""
        id_, present = self.here(workload).id, self.cluster.records.present
        await self.cluster.until(
            lambda: id_ in present and present[id_].state == GangRecord.STATE_SATISFIED, f"{id_} is recorded as started"
        )

    async def minimum(self, workload: Workload, minimum: int) -> None:
        """Wait until the coordinator reports this minimum."""
        id_, gangs = self.here(workload).id, self.cluster.gangs
        await self.cluster.until(lambda: id_ in gangs and gangs[id_].minimum == minimum, f"{id_} needs {minimum}")

    async def waits(self, workload: Workload, *saying: str, seconds: float = WAIT_SECONDS) -> coordinator_pb2.Gang:
        """Wait until the gang is pending with a reason that contains the words, and if it is complete, until it or an
        equal one was tried; nothing is bound.
        """
        id_ = self.here(workload).id

        def settled() -> bool:
            gang = self.cluster.gangs.get(id_)
            return gang is not None and gang.phase in WAITING and all(words in gang.reason for words in saying)

        await self.cluster.until(settled, f"{id_} waits, saying {saying}", seconds=seconds)
        if self.cluster.gangs[id_].phase == Phase.PHASE_QUEUED:
            await self._explained(
                workload, lambda answer: answer.attempts > 0 or answer.HasField("explanation"), seconds=seconds
            )
        assert self.bound_pods(workload) == {}, f"pods of {id_} are bound: {self.bound_pods(workload)}"
        return self.cluster.gangs[id_]

    async def holds(self, workload: Workload, seats: int) -> coordinator_pb2.ExplainResponse:
        """Wait until `count` of its pods have a reservation and none is bound; returns its explanation then."""
        answer = await self._explained(
            workload, lambda answer: sum(bool(member.reserved_node) for member in answer.members) == seats
        )
        assert self.bound_pods(workload) == {}
        return answer

    async def wait_for_nomination(self, workload: Workload, *, nodes: int) -> coordinator_pb2.ExplainResponse:
        """Wait until capacity is nominated for it on `count` nodes."""
        return await self._explained(workload, lambda answer: answer.nodes_with_nominated_capacity == nodes)

    async def _explained(
        self,
        workload: Workload,
        condition: Callable[[coordinator_pb2.ExplainResponse], bool],
        *,
        seconds: float = WAIT_SECONDS,
    ) -> coordinator_pb2.ExplainResponse:
        """Wait until its explanation satisfies the condition."""
        id_ = self.here(workload).id
        version = -1
        async with asyncio.timeout(seconds):
            while True:
                if id_ in self.cluster.gangs and condition(answer := await self.cluster.explain(id_)):
                    return answer
                with contextlib.suppress(TimeoutError):  # not every change is reported
                    version = await asyncio.wait_for(self.cluster.view.newer_than(version), 0.2)

    async def tried(self, workload: Workload, *, more_than: int = 0, seconds: float = WAIT_SECONDS) -> int:
        """Wait until the number of attempts exceeds `more_than`; returns it."""
        id_ = self.here(workload).id
        async with asyncio.timeout(seconds):
            while (answer := await self.cluster.explain(id_)).attempts <= more_than:
                with contextlib.suppress(TimeoutError):  # an attempt that changes nothing is not reported
                    await asyncio.wait_for(self.cluster.view.newer_than(self.cluster.view.version), 0.1)
        return answer.attempts

    async def forgotten(self, workload: Workload) -> None:
        """Wait until the coordinator has forgotten the gang."""
        id_ = self.here(workload).id
        await self.cluster.until(lambda: id_ not in self.cluster.gangs, f"{id_} is forgotten")

    async def event(self, workload: Workload, *saying: str, kind: str = "Warning") -> JSON:
        """Wait for an event about one of its pods or its PodGroup that contains the words."""
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

    async def unschedulable(self, workload: Workload, *saying: str, reason: str = "") -> None:
        """Wait until every existing pod has PodScheduled=False with these words, and this reason if given (I10)."""
        workload = self.here(workload)
        keys = {(workload.namespace, workload.pod_name(number)) for number in range(workload.size)}

        def all_say() -> bool:
            pods = [pod for key, pod in self.cluster.pods.items() if key in keys]
            return bool(pods) and all(_says_pending(pod, saying, reason) for pod in pods)

        await self.cluster.until(all_say, f"all pods of {workload.id} say {reason or 'pending'} and {saying}")


def _note(event: JSON) -> str:
    return str(event.get("note") or event.get("message") or "")


def _says_pending(pod: JSON, saying: tuple[str, ...], reason: str) -> bool:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled":
            message = condition.get("message", "")
            return (
                condition["status"] == "False"
                and (condition.get("reason") == reason if reason else condition.get("reason") != "SchedulingGated")
                and all(words in message for words in saying)
            )
    return False
