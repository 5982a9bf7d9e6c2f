"""Observations of the gangs of one scenario, awaited on reports of the API server and the coordinator."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from builders.e2e.cluster import Cluster, node_of
from builders.e2e.observations import WAITING
from builders.wait import eventually
from interop.gang import GANG, JSON, Gang
from interop.running_controller import RunningController
from muster.coordinator.v1.coordinator_pb2 import Gang as CoordinatorGang
from muster.coordinator.v1.coordinator_pb2 import Phase

WAIT_SECONDS = 90.0
"""Deadline of each step. Controllers back off for some seconds after failures."""
_POD_GROUPS = (
    "scheduling.x-k8s.io/v1alpha1",
    "scheduling.sigs.k8s.io/v1alpha1",
    "scheduling.volcano.sh/v1beta1",
    "scheduling.k8s.io/v1beta1",
)


class ObservedGangs:
    """Gangs of one namespace, found by the label of their pods."""

    def __init__(self, cluster: Cluster, namespace: str, controllers: Mapping[str, RunningController]) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._controllers = controllers

    def pods(self, gang: Gang) -> list[JSON]:
        """Its pods that have not ended and are not being deleted, by name."""
        return [
            pod
            for (namespace, _), pod in sorted(self.cluster.pods.items())
            if namespace == gang.namespace
            and (pod["metadata"].get("labels") or {}).get(GANG) == gang.name
            and "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def bound(self, gang: Gang) -> list[JSON]:
        """Its pods that have a node."""
        return [pod for pod in self.pods(gang) if node_of(pod)]

    def running(self, gang: Gang) -> list[JSON]:
        """Its pods that run."""
        return [pod for pod in self.pods(gang) if pod["status"].get("phase") == "Running"]

    def coordinator_gangs(self, *gangs: Gang) -> list[CoordinatorGang]:
        """The coordinator's reports about the sandbox's gangs, or about these."""
        found = [each for each in self.cluster.gangs.values() if each.namespace == self.namespace]
        return [each for each in found if not gangs or any(gang.name in each.name for gang in gangs)]

    def declaration_warnings(self) -> list[str]:
        """Warnings about declarations in the namespace."""
        return [
            str(event.get("note") or event.get("message"))
            for event in self.cluster.events.values()
            if event["metadata"]["namespace"] == self.namespace and event.get("reason") == "GangDeclaration"
        ]

    def has_event(self, reason: str) -> bool:
        """Whether an object of the namespace has an event with this reason."""
        events = self.cluster.events.values()
        return any(each["metadata"]["namespace"] == self.namespace and each.get("reason") == reason for each in events)

    async def until(self, condition: Callable[[], object], what: str, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait for a condition on what is observed. Fails with what was expected and the sandbox's state."""
        version = -1
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    version = await self.cluster.view.newer_than(version)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{self.described()}") from None

    async def started(self, gang: Gang, size: int | None = None, *, without: Sequence[str] | set[str] = ()) -> None:
        """Wait until `size` of its pods run, by default all, and no other exists. `without` are uids of earlier pods
        that must be gone or terminating.
        """
        wanted = gang.size if size is None else size
        await self.until(
            lambda: len(self.running(gang)) == len(self.pods(gang)) == wanted and not set(without) & self.uids(gang),
            f"{wanted} pods of {gang.name} run",
        )

    async def waits(self, gang: Gang, members: int) -> None:
        """Wait until this many of its pods exist and the coordinator has tried to place it; none may be bound."""
        await self.until(lambda: len(self.pods(gang)) >= members, f"{members} pods of {gang.name} exist")
        await self.until(
            lambda: any(each.phase in WAITING and each.members >= members for each in self.coordinator_gangs(gang)),
            f"the coordinator has all pods of {gang.name} in its queue",
        )
        [found] = [each for each in self.coordinator_gangs(gang) if each.members >= members]
        if found.phase == Phase.PHASE_QUEUED:

            async def tried() -> bool:
                return (await self.cluster.explain(found.id)).attempts > 0

            await eventually(tried, f"the coordinator has tried to place {found.id}", seconds=WAIT_SECONDS)
        assert not self.bound(gang), f"pods of {gang.name} are bound while it waits\n{self.described()}"

    async def gone(self, gang: Gang) -> None:
        """Wait until its pods are gone and the coordinator has forgotten it."""
        await self.until(
            lambda: not any(self._of(gang, pod) for pod in self.cluster.pods.values()), f"no pod of {gang.name} exists"
        )
        await self.until(lambda: not self.coordinator_gangs(gang), f"the coordinator has forgotten {gang.name}")

    async def nothing_left(self) -> None:
        """Wait until no record and no PodGroup of the namespace exists."""

        async def left() -> list[str]:
            records = [gang for gang in await self.cluster.records.stored() if f"/{self.namespace}/" in gang]
            for version in _POD_GROUPS:
                answer = await self.cluster.try_call("GET", f"/apis/{version}/namespaces/{self.namespace}/podgroups")
                if answer.status == 200:
                    records += [
                        f"PodGroup {one['metadata']['name']}" for one in msgspec.json.decode(answer.body)["items"]
                    ]
            return records

        found: list[str] = []

        async def none() -> bool:
            found[:] = await left()
            return not found

        await eventually(none, lambda: f"left behind: {found}", seconds=WAIT_SECONDS)

    def uids(self, gang: Gang) -> set[str]:
        """Uids of its pods that have not ended and are not being deleted."""
        return {pod["metadata"]["uid"] for pod in self.pods(gang)}

    def described(self) -> str:
        """The state of the namespace, for failure messages."""
        lines = ["  pods:"]
        for (namespace, name), pod in sorted(self.cluster.pods.items()):
            if namespace == self.namespace:
                deleted = ", terminating" if "deletionTimestamp" in pod["metadata"] else ""
                gates = ", gated" if pod["spec"].get("schedulingGates") else ""
                lines.append(f"    {name}: {pod['status'].get('phase')} on {node_of(pod) or '-'}{deleted}{gates}")
        lines += ["  gangs, as the coordinator reports them:"]
        for each in self.coordinator_gangs():
            phase = Phase.Name(each.phase).removeprefix("PHASE_").lower()
            lines.append(
                f"    {each.id}: {phase}, {each.bound} of {each.members} bound, needs {each.minimum}: {each.reason}"
            )
        for name, controller in self._controllers.items():
            if not controller.running:
                lines.append(f"  {name} does not run")
        return "\n".join(lines)

    def _of(self, gang: Gang, pod: JSON) -> bool:
        metadata = pod["metadata"]
        return metadata["namespace"] == gang.namespace and (metadata.get("labels") or {}).get(GANG) == gang.name
