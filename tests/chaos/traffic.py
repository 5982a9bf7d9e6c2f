"""Endless load: gangs of every kind are created, run for a while and are deleted; evicted pods are recreated.

Every gang must become bound; its waiting time is recorded. A pod that disappears without being deleted here was
evicted, which requires a pending gang of higher priority.
"""

import asyncio
import contextlib
import itertools
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest
from random import Random
from typing import Any

from builders.e2e.cluster import JSON, Cluster, node_of
from builders.e2e.devices import gpus, undefine_claims, with_claims, with_extended_resource, with_named_claim
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.wait import eventually
from muster.kube.session import KubeUnreachable

SILENCE_SECONDS = 10.0
"""A gang that is pending for so long while every service is available must have a reason (I10)."""
_START_TIMEOUT_SECONDS = 120.0
"""A gang that has not started by then has failed."""
_MAX_SLOWEST = 10
"""Number of slowest gangs in the result."""
_MAX_PAUSE_SECONDS = 0.45
_MAX_WORKLOADS = 14
_LOW, _HIGH = -10, 100
_RECENT_SECONDS = 5.0
"""Evictions for a gang may still be in flight for so long after it was bound."""


@dataclass
class Workloads:
    """One or more gangs that start together, from creation to deletion."""

    kind: str
    gangs: list[Workload]
    runs_seconds: float
    priority: int = 0
    created_at: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    bound_at: float | None = None
    leaving: bool = False
    claims: Callable[[Workload], Awaitable[Workload]] | None = None
    """Creates what its pods claim devices by; returns the gang whose pods do."""


class Traffic:
    """Creates gangs from a seed, on the nodes of a cluster."""

    def __init__(self, world: World, random: Random, *, only: str = "") -> None:
        self._world, self._random, self._only = world, random, only
        self._cluster: Cluster = world.cluster
        self._by_pod: dict[tuple[str, str], Workloads] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._free_slots = asyncio.Semaphore(_MAX_WORKLOADS)
        self.violations: list[str] = []
        self.available: deque[tuple[float, float]] = deque(maxlen=1000)
        """Intervals in which every service, the API server and etcd were available."""
        self.started: Counter[str] = Counter()
        self.waited_seconds: defaultdict[str, list[float]] = defaultdict(list)
        """Seconds from creation until all pods were bound, by kind of gang."""
        self.slowest: list[tuple[float, str]] = []
        """Seconds until all pods were bound, with the gang."""
        self.evicted = 0
        self._cluster.on_pod = self._pod_changed

    async def load(self) -> None:
        """Creates workloads until cancelled; existing ones run to their end."""
        for number in itertools.count():
            await self._free_slots.acquire()
            workloads = self._create(number)
            task = asyncio.create_task(self._run_to_end(workloads))
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)
            await asyncio.sleep(self._random.uniform(0, _MAX_PAUSE_SECONDS))

    async def drained(self) -> None:
        """Waits until all workloads have started, run and been deleted."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def waiting(self) -> list[Workloads]:
        """Lists workloads that are not bound."""
        distinct = {id(workloads): workloads for workloads in self._by_pod.values()}
        return [workloads for workloads in distinct.values() if workloads.bound_at is None]

    def _create(self, number: int) -> Workloads:
        kinds: list[tuple[int, Callable[[str], Workloads]]] = [
            (6, self._strict),
            (3, self._non_strict),
            (2, self._group),
            (2, self._pod_group),
            (2, self._low_priority),
            (2, self._preemptor),
            (3, self._claiming),
            (2, self._sharing),
            (2, self._extended),
            (1, self._low_priority_claiming),
        ]
        weights, makers = zip(*kinds, strict=True)
        [make] = self._random.choices(makers, weights)
        return make(f"g{number:05}") if not self._only else self._strict(f"g{number:05}")

    def _runs(self, longest: float = 3.0) -> float:
        return self._random.uniform(0.2, longest)

    def _strict(self, name: str) -> Workloads:
        return Workloads("strict", [gang(name).of(self._random.randint(1, 8))], self._runs())

    def _non_strict(self, name: str) -> Workloads:
        size = self._random.randint(2, 6)
        patient = gang(name).of(size).needing(self._random.randint(1, size))
        return Workloads("nonstrict", [patient.non_strict(60)], self._runs())

    def _group(self, name: str) -> Workloads:
        left = gang(f"{name}-l").of(self._random.randint(1, 4)).in_namespace(self._world.namespace("left"))
        right = gang(f"{name}-r").of(self._random.randint(1, 4)).in_namespace(self._world.namespace("right"))
        names = [f"{each.namespace}/{each.name}" for each in (left, right)]
        return Workloads("group", [left.with_group(*names), right.with_group(*names)], self._runs())

    def _pod_group(self, name: str) -> Workloads:
        dialect = self._random.choice(("coscheduling", "kube-batch"))
        return Workloads(dialect, [gang(name).of(self._random.randint(2, 5)).declared_by(dialect)], self._runs())  # type: ignore[arg-type]

    def _low_priority(self, name: str) -> Workloads:
        low_priority = gang(name).of(self._random.randint(6, 14)).with_priority(_LOW)
        return Workloads("low_priority", [low_priority], self._runs(10.0), priority=_LOW)

    def _preemptor(self, name: str) -> Workloads:
        preemptor = gang(name).of(self._random.randint(2, 5)).asking(cpu=4).with_priority(_HIGH)
        return Workloads("preemptor", [preemptor], self._runs(), priority=_HIGH)

    def _claiming(self, name: str) -> Workloads:
        """A claim for each pod."""
        requests = [gpus(self._world, self._random.choice((1, 1, 2, 4)))]
        workload = gang(name).of(self._random.randint(1, 6))
        return Workloads("claiming", [workload], self._runs(), claims=partial(self._with_claims, requests))

    def _low_priority_claiming(self, name: str) -> Workloads:
        workload = gang(name).of(self._random.randint(4, 10)).with_priority(_LOW)
        claims = partial(self._with_claims, [gpus(self._world, 2)])
        return Workloads("low_priority_claiming", [workload], self._runs(10.0), priority=_LOW, claims=claims)

    def _sharing(self, name: str) -> Workloads:
        """One claim, by name, for all pods."""
        workload, count = gang(name).of(self._random.randint(2, 6)), self._random.randint(1, 3)
        claims = partial(self._with_named_claim, gpus(self._world, count))
        return Workloads("sharing", [workload], self._runs(), claims=claims)

    def _extended(self, name: str) -> Workloads:
        """An extended resource that a DeviceClass backs."""
        workload, count = gang(name).of(self._random.randint(1, 5)), self._random.randint(1, 3)
        return Workloads("extended", [workload], self._runs(), claims=partial(self._with_extended_resource, count))

    async def _with_claims(self, requests: list[JSON], workload: Workload) -> Workload:
        return await with_claims(self._world, workload, *requests)

    async def _with_named_claim(self, request: JSON, workload: Workload) -> Workload:
        return await with_named_claim(self._world, workload, request)

    async def _with_extended_resource(self, count: int, workload: Workload) -> Workload:
        return await with_extended_resource(self._world, workload, count)

    async def _run_to_end(self, workloads: Workloads) -> None:
        placed = [self._world.here(each) for each in workloads.gangs]
        if workloads.claims is not None:
            placed = [await workloads.claims(each) for each in placed]
        workloads.gangs = placed
        keys = [(each.namespace, each.pod_name(number)) for each in placed for number in range(each.size)]
        self._by_pod.update(dict.fromkeys(keys, workloads))
        try:
            for each in placed:
                await self._world.create(each)
            workloads.created_at = time.monotonic()
            await self._all_bound(workloads)
            self.started[workloads.kind] += 1
            waited = time.monotonic() - workloads.created_at
            self.waited_seconds[workloads.kind].append(waited)
            when = time.strftime("%H:%M:%S", time.localtime(time.time() - waited))
            what = f"{workloads.kind} {placed[0].name}, created {when}"
            self.slowest = nlargest(_MAX_SLOWEST, [*self.slowest, (waited, what)])
            if workloads.kind == "kube-batch":
                await self._wait_for_status(workloads)
            await self._run(workloads)
        except TimeoutError:
            self.violations.append(
                f"{workloads.kind} {placed[0].id} has not started: {self._reason(workloads) or 'no reason reported'}"
            )
        except AssertionError as error:
            self.violations.append(f"{workloads.kind} {placed[0].id}: {error}")
        finally:
            workloads.leaving = True
        for each in placed:
            await self._world.delete(each)
            if workloads.claims is not None:
                await undefine_claims(self._world, each)
        for key in keys:
            self._by_pod.pop(key, None)
        self._free_slots.release()

    async def _all_bound(self, workloads: Workloads) -> None:
        """Raises TimeoutError."""
        since, silent = time.monotonic(), True
        async with asyncio.timeout(_START_TIMEOUT_SECONDS):
            while not self._all_are_bound(workloads):
                await self._wait_for_change(workloads, 1.0)
                await self._recreate_pods(workloads)
                if not self._pending(workloads):
                    since = time.monotonic()
                if silent and self._available_seconds(since) > SILENCE_SECONDS:
                    silent = False
                    if not self._reason(workloads):
                        self.violations.append(
                            f"I10: {workloads.gangs[0].id} waits {SILENCE_SECONDS:g} s and has no reason"
                        )
        workloads.bound_at = time.monotonic()

    def _available_seconds(self, since: float) -> float:
        return sum(end - max(begin, since) for begin, end in self.available if end > since)

    def _pending(self, workloads: Workloads) -> bool:
        """Whether a pod of it exists and is pending."""
        keys = [(each.namespace, each.pod_name(number)) for each in workloads.gangs for number in range(each.size)]
        pods = [self._cluster.pods[key] for key in keys if key in self._cluster.pods]
        return any(not node_of(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)

    def _all_are_bound(self, workloads: Workloads) -> bool:
        return all(len(self._world.bound_pods(each)) == each.size for each in workloads.gangs)

    async def _run(self, workloads: Workloads) -> None:
        """Keeps the workload bound until its time is over, recreating evicted pods. Raises TimeoutError."""
        end = time.monotonic() + workloads.runs_seconds
        while time.monotonic() < end or not self._all_are_bound(workloads):
            if not self._all_are_bound(workloads):
                workloads.bound_at = None
                await self._all_bound(workloads)
            await self._wait_for_change(workloads, end - time.monotonic())

    @staticmethod
    async def _wait_for_change(workloads: Workloads, seconds: float) -> None:
        """Returns when a pod changes, or after so many seconds."""
        workloads.changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await workloads.changed.wait()

    async def _recreate_pods(self, workloads: Workloads) -> None:
        """Recreates evicted pods, as their owner would, once no pod is terminating."""
        for each in workloads.gangs:
            missing = [
                number
                for number in range(each.size)
                if (each.namespace, each.pod_name(number)) not in self._cluster.pods
            ]
            going = any(
                "deletionTimestamp" in self._cluster.pods[key]["metadata"]
                for number in range(each.size)
                if (key := (each.namespace, each.pod_name(number))) in self._cluster.pods
            )
            if missing and not going:
                await self._world.add_pods(each, *missing)

    async def _wait_for_status(self, workloads: Workloads) -> None:
        """Waits until lifecycle has counted its pods. Raises AssertionError."""
        [group] = workloads.gangs
        path = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{group.namespace}/podgroups/{group.name}"

        async def counted() -> bool:  # PodGroups are not watched here
            found = await self._cluster.call("GET", path)
            if found.get("status", {}).get("admitted") == group.size:
                return True
            await self._recreate_pods(workloads)
            return False

        what = f"status.admitted of PodGroup {group.name} is {group.size}"
        await eventually(counted, what, seconds=_START_TIMEOUT_SECONDS, every_seconds=0.2)

    def _reason(self, workloads: Workloads) -> str:
        """Returns the reason on its pods' conditions or in events."""
        for each in workloads.gangs:
            for number in range(each.size):
                pod = self._cluster.pods.get((each.namespace, each.pod_name(number)), {})
                for condition in pod.get("status", {}).get("conditions") or ():
                    if (
                        condition["type"] == "PodScheduled"
                        and condition["status"] == "False"
                        and condition.get("message")
                    ):
                        return str(condition["message"])
            names = [each.name, *(each.pod_name(number) for number in range(each.size))]
            if events := self._cluster.events_of(each.namespace, names):
                return str(events[-1].get("note", ""))
        return ""

    def _pod_changed(self, change: str, pod: JSON) -> None:
        workloads = self._by_pod.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
        if workloads is None:
            return
        workloads.changed.set()
        if change == "DELETED" and not workloads.leaving:
            self._evicted(workloads, pod)

    def _evicted(self, workloads: Workloads, pod: JSON) -> None:
        self.evicted += 1
        now = time.monotonic()
        if not node_of(pod) or not any(
            other.priority > workloads.priority and (other.bound_at is None or now - other.bound_at < _RECENT_SECONDS)
            for other in self._by_pod.values()
        ):
            self.violations.append(f"I9: {pod['metadata']['name']} was evicted for no pending gang of higher priority")

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, KubeUnreachable):
            self.violations.append(f"the load failed: {error!r}")
