"""Load that never ends: gangs of every kind come, run for a while and go, and whoever loses pods makes them anew.

Every gang must end bound; what it waited for is kept for the figures. A pod that is away though nobody here deleted it
was evicted, and that must have been for somebody.
"""

import asyncio
import contextlib
import itertools
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nlargest
from random import Random
from typing import Any

from builders.e2e.cluster import JSON, Cluster, node_of
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang
from muster.kube.session import KubeUnreachable

SILENCE_SECONDS = 10.0
"""A gang that has waited for so long while somebody of every service was there must have been told why (I10)."""
_PATIENCE_SECONDS = 120.0
"""A gang that has not started by then never will."""
_SLOWEST = 10
"""So many are named at the end."""
_LONGEST_PAUSE_SECONDS = 0.45
_MOST_GANGS = 14
_LOW, _HIGH = -10, 100
_JUST_SECONDS = 5.0
"""Who has its place since then is one for whom evictions may still be under way."""


@dataclass
class Life:
    """One or more gangs that start together, from their creation to their end."""

    kind: str
    gangs: list[Workload]
    runs_seconds: float
    priority: int = 0
    born: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    bound_at: float | None = None
    leaving: bool = False


class Traffic:
    """Creates them from a seed, on the nodes of a scene."""

    def __init__(self, scene: Scene, random: Random, *, only: str = "") -> None:
        self._scene, self._random, self._only = scene, random, only
        self._cluster: Cluster = scene.cluster
        self._living: dict[tuple[str, str], Life] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_MOST_GANGS)
        self.violations: list[str] = []
        self.whole: deque[tuple[float, float]] = deque(maxlen=1000)
        """From when to when every service was there, and the API server and etcd."""
        self.started: Counter[str] = Counter()
        self.waited_seconds: defaultdict[str, list[float]] = defaultdict(list)
        """How long gangs of each kind took from their creation until all their pods were bound."""
        self.slowest: list[tuple[float, str]] = []
        """Seconds until all was bound, and of which gang."""
        self.evicted = 0
        self._cluster.on_pod = self._pod_changed

    async def flow(self) -> None:
        """Create one after the other until cancelled; those that are there live on."""
        for number in itertools.count():
            await self._room.acquire()
            life = self._make(number)
            task = asyncio.create_task(self._live(life))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
            await asyncio.sleep(self._random.uniform(0, _LONGEST_PAUSE_SECONDS))

    async def drained(self) -> None:
        """Wait until all have started, run and gone."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def waiting(self) -> list[Life]:
        """Those that are not bound."""
        lives = {id(life): life for life in self._living.values()}
        return [life for life in lives.values() if life.bound_at is None]

    # -- what there is

    def _make(self, number: int) -> Life:
        kinds: list[tuple[int, Callable[[str], Life]]] = [
            (6, self._strict),
            (3, self._non_strict),
            (2, self._group),
            (2, self._pod_group),
            (2, self._squatter),
            (2, self._preemptor),
        ]
        weights, makers = zip(*kinds, strict=True)
        [make] = self._random.choices(makers, weights)
        return make(f"g{number:05}") if not self._only else self._strict(f"g{number:05}")

    def _runs(self, longest: float = 3.0) -> float:
        return self._random.uniform(0.2, longest)

    def _strict(self, name: str) -> Life:
        return Life("strict", [gang(name).of(self._random.randint(1, 8))], self._runs())

    def _non_strict(self, name: str) -> Life:
        size = self._random.randint(2, 6)
        patient = gang(name).of(size).needing(self._random.randint(1, size))
        return Life("nonstrict", [patient.annotated(mode="NonStrict", waiting_time="60s")], self._runs())

    def _group(self, name: str) -> Life:
        left = gang(f"{name}-l").of(self._random.randint(1, 4)).in_namespace(self._scene.namespace("left"))
        right = gang(f"{name}-r").of(self._random.randint(1, 4)).in_namespace(self._scene.namespace("right"))
        names = [f"{each.namespace}/{each.name}" for each in (left, right)]
        return Life("group", [left.with_group(*names), right.with_group(*names)], self._runs())

    def _pod_group(self, name: str) -> Life:
        dialect = self._random.choice(("coscheduling", "kube-batch"))
        return Life(dialect, [gang(name).of(self._random.randint(2, 5)).declared_by(dialect)], self._runs())  # type: ignore[arg-type]

    def _squatter(self, name: str) -> Life:
        squatter = gang(name).of(self._random.randint(6, 14)).with_priority(_LOW)
        return Life("squatter", [squatter], self._runs(10.0), priority=_LOW)

    def _preemptor(self, name: str) -> Life:
        preemptor = gang(name).of(self._random.randint(2, 5)).asking(cpu=4).with_priority(_HIGH)
        return Life("preemptor", [preemptor], self._runs(), priority=_HIGH)

    # -- a life

    async def _live(self, life: Life) -> None:
        placed = [self._scene.here(each) for each in life.gangs]
        life.gangs = placed
        keys = [(each.namespace, each.pod_name(number)) for each in placed for number in range(each.size)]
        self._living.update(dict.fromkeys(keys, life))
        try:
            for each in placed:
                await self._scene.create(each)
            life.born = time.monotonic()
            await self._all_bound(life)
            self.started[life.kind] += 1
            waited = time.monotonic() - life.born
            self.waited_seconds[life.kind].append(waited)
            when = time.strftime("%H:%M:%S", time.localtime(time.time() - waited))
            what = f"{life.kind} {placed[0].name}, created {when}"
            self.slowest = nlargest(_SLOWEST, [*self.slowest, (waited, what)])
            if life.kind == "kube-batch":
                await self._status_follows(life)
            await self._run(life)
        except TimeoutError:
            self.violations.append(
                f"{life.kind} {placed[0].id} has not started: {self._told(life) or 'nobody says why'}"
            )
        finally:
            life.leaving = True
        for each in placed:
            await self._scene.delete(each)
        for key in keys:
            self._living.pop(key, None)
        self._room.release()

    async def _all_bound(self, life: Life) -> None:
        """Raises TimeoutError."""
        since, silent = time.monotonic(), True
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not self._is_bound(life):
                await self._news(life, 1.0)
                await self._make_anew(life)
                if not self._pending(life):
                    since = time.monotonic()
                if silent and self._whole_seconds(since) > SILENCE_SECONDS:
                    silent = False
                    if not self._told(life):
                        self.violations.append(
                            f"I10: {life.gangs[0].id} waits {SILENCE_SECONDS:g} s and is not told why"
                        )
        life.bound_at = time.monotonic()

    def _whole_seconds(self, since: float) -> float:
        return sum(end - max(begin, since) for begin, end in self.whole if end > since)

    def _pending(self, life: Life) -> bool:
        """A pod of it is there, and waits."""
        keys = [(each.namespace, each.pod_name(number)) for each in life.gangs for number in range(each.size)]
        pods = [self._cluster.pods[key] for key in keys if key in self._cluster.pods]
        return any(not node_of(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)

    def _is_bound(self, life: Life) -> bool:
        return all(len(self._scene.bound_pods(each)) == each.size for each in life.gangs)

    async def _run(self, life: Life) -> None:
        """Until its time is over; whenever it is evicted it starts again. Raises TimeoutError."""
        end = time.monotonic() + life.runs_seconds
        while time.monotonic() < end or not self._is_bound(life):
            if not self._is_bound(life):
                life.bound_at = None
                await self._all_bound(life)
            await self._news(life, end - time.monotonic())

    @staticmethod
    async def _news(life: Life, seconds: float) -> None:
        """Return when something happens to its pods, or after so long."""
        life.changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await life.changed.wait()

    async def _make_anew(self, life: Life) -> None:
        """Pods that were evicted, as their owner would, once all that must go have gone."""
        for each in life.gangs:
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
                await self._scene.add_pods(each, *missing)

    async def _status_follows(self, life: Life) -> None:
        """lifecycle counts its pods. Raises TimeoutError."""
        [group] = life.gangs
        path = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{group.namespace}/podgroups/{group.name}"
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                found = await self._cluster.call("GET", path)
                if found.get("status", {}).get("admitted") == group.size:
                    return
                await asyncio.sleep(0.2)  # PodGroups are not followed here
                await self._make_anew(life)

    def _told(self, life: Life) -> str:
        """What its pods or the coordinator's events say of it."""
        for each in life.gangs:
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

    # -- what happens to pods

    def _pod_changed(self, change: str, pod: JSON) -> None:
        life = self._living.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
        if life is None:
            return
        life.changed.set()
        if change == "DELETED" and not life.leaving:
            self._evicted(life, pod)

    def _evicted(self, life: Life, pod: JSON) -> None:
        self.evicted += 1
        now = time.monotonic()
        if not node_of(pod) or not any(
            other.priority > life.priority and (other.bound_at is None or now - other.bound_at < _JUST_SECONDS)
            for other in self._living.values()
        ):
            self.violations.append(f"I9: {pod['metadata']['name']} was evicted and nobody of higher priority waited")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, KubeUnreachable):
            self.violations.append(f"the load itself failed: {error!r}")
