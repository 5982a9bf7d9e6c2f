"""Replays a trace: gangs are submitted, start and end in virtual time, through the coordinator's machine and a real
placement.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from muster.coordinator.core.effects import Report
from muster.coordinator.core.events import Record, Rules
from muster.coordinator.core.term_state import TermState
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.player import Ended, Evicted, Happening, Player, Solver, Started
from muster.forecast.snapshot import Snapshot
from muster.forecast.submissions import Submission, span
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import PODS, Amounts, Batch, GangFacts, NodeFacts, PodClass, PodFacts, TopologyTree, TreeLevel
from muster.kube.pod_class import identified

EPOCH: Final = 1_700_000_000
"""Wall clock at the begin of a trace on free nodes, in seconds: declarations have times."""
DIALECT: Final = "trace"
HOSTNAME: Final = "kubernetes.io/hostname"
RACK: Final = "rack"


class Mode(StrEnum):
    """Who schedules."""

    MUSTER = "muster"
    FCFS = "fcfs"
    """First come, first served, without backfill: a gang is tried when the one before it has started."""
    POD_BY_POD = "pod-by-pod"
    """Pods are placed one by one; a gang that lacks pods holds the capacity of those that it has."""


@dataclass
class Run:
    """One gang of the trace as it was played. Times are seconds since the begin of the trace; None: not yet."""

    submission: Submission
    first_started: float | None = None
    """Time at which its minimum ran for the first time."""
    ended: float | None = None
    evicted_pods: int = 0
    preemptions: int = 0
    """Evictions of the whole gang, or of a part of it, for another one."""

    @property
    def waited_seconds(self) -> float | None:
        """From its submission to its first start."""
        return None if self.first_started is None else max(0.0, self.first_started - self.submission.at_seconds)


@dataclass
class Level:
    """An amount over time, with its integral."""

    amount: int
    integral: float = 0.0
    """Amount times seconds."""
    since: float = 0.0

    def change(self, now: float, by: int) -> None:
        """The amount changes at a time."""
        self.integral += self.amount * (now - self.since)
        self.amount, self.since = self.amount + by, now


class Usage:
    """What is free of one resource: in all, and on nodes without any pod."""

    def __init__(self, by_node: dict[str, int]) -> None:
        self.capacity = sum(by_node.values())
        self.used = Level(0)
        self.on_idle_nodes = Level(self.capacity)
        self._by_node = by_node

    def change(self, now: float, by: int) -> None:
        """Pods use more or less."""
        self.used.change(now, by)

    def occupy(self, now: float, node: str, *, idle: bool) -> None:
        """The node has its first pod, or has lost its last one."""
        amount = self._by_node.get(node, 0)
        self.on_idle_nodes.change(now, amount if idle else -amount)

    def shares(self, now: float) -> "Shares":
        """The shares from the begin until now."""
        self.used.change(now, 0)
        self.on_idle_nodes.change(now, 0)
        available = self.capacity * now
        free = available - self.used.integral
        return Shares(
            used=self.used.integral / available if available else 0.0,
            fragmented=max(0.0, 1 - self.on_idle_nodes.integral / free) if free > 0 else 0.0,
        )


class Shares(NamedTuple):
    """Shares of one resource over time, 0 to 1.

    `used`: of the capacity. `fragmented`: of what was free, the share on nodes with pods, where no gang of whole nodes
    can use it.
    """

    used: float
    fragmented: float


@dataclass
class Present:
    """Gangs of a snapshot: those that waited at its time, and when they started, by gang."""

    running_pods: int
    waiting: dict[str, float | None]


@dataclass
class Outcome:
    """What became of a trace."""

    mode: Mode
    runs: list[Run]
    shares: dict[str, Shares]
    """By resource, until the last submission: after that the cluster only empties."""
    present: "Present | None"
    """What became of the gangs that were there at the begin; None: nodes were free."""
    seconds: float
    """Virtual time that passed."""
    steps: int = 0
    solves: int = 0


class Replay:
    """Plays submissions on a cluster: on nodes that are free at the begin, or on a snapshot with its gangs."""

    def __init__(
        self,
        start: "Start",
        submissions: Sequence[Submission],
        *,
        rules: Rules,
        mode: Mode = Mode.MUSTER,
        on_progress: Callable[[float, int], None] = lambda _now, _ended: None,
    ) -> None:
        """`on_progress` gets the virtual time, and how many gangs have ended."""
        self.cluster = VirtualCluster()
        self.cluster.apply(start.batch)
        self._start, self._epoch = start, start.unix_seconds
        self.stream = ClusterStream(self.cluster)
        self._submissions, self._rules, self._mode = submissions, rules, mode
        self._on_progress = on_progress
        self._runs = {gang_id(each): Run(each) for each in submissions}
        self._classes: dict[Amounts, PodClass] = {}
        self._bound: Counter[str] = Counter()
        """Bound pods by gang."""
        self._waiting: deque[Submission] = deque()
        """Gangs that are not submitted before those ahead of them have started."""
        self._held_back = False
        self._whole_since: dict[str, float] = {}
        """Gangs that run with their minimum, of which pods are placed one by one."""
        self._replaced: dict[str, str] = {}
        """Uids of the last pods that replace evicted ones, of such gangs."""
        self._ended = 0
        self._pods_on: Counter[str] = Counter()
        by_resource: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for node in self.cluster.nodes.values():
            for name, amount in node.allocatable:
                by_resource[name][node.name] = amount
        self._usage = {name: Usage(amounts) for name, amounts in by_resource.items() if name != PODS}
        self._shares: dict[str, Shares] = {}
        self._present: Present | None = None
        self._player: Player | None = None

    async def run(self, solver: Solver, *, until: float | None = None) -> Outcome:
        """Play until the last gang has ended, nothing happens any more, or virtual time is `until`."""
        player = self._player = Player(
            self.cluster,
            solver,
            rules=self._rules,
            now=self._epoch,
            on_change=self.stream.change,
            observe=self._observe,
            resumes=self._start.term_state,
        )
        for each in self._submissions:
            player.at(self._epoch + each.at_seconds, lambda each=each: self._submit(each))  # type: ignore[misc]
        player.at(self._epoch + span(self._submissions), self._measure)
        self._take_present()
        await player.begin(self._start.records)
        end = float("inf") if until is None else self._epoch + until
        while self._ended < len(self._runs) and player.next_due is not None and await player.advance(end):
            self._on_progress(player.now - self._epoch, self._ended)
        if not self._shares:
            self._measure()
        seconds = player.now - self._epoch
        runs = list(self._runs.values())
        return Outcome(self._mode, runs, self._shares, self._present, seconds, player.steps, player.solves)

    def _take_present(self) -> None:
        """Count what the pods use that run at the begin, and note the gangs that wait."""
        running = [pod for pod in self.cluster.pods.values() if pod.seated]
        if self._start.is_snapshot:
            started = {pod.gang for pod in running}
            pending = [pod for pod in self.cluster.pods.values() if not pod.node and not pod.phase.ended]
            waiting = {pod.gang or pod.uid for pod in pending} - started
            self._present = Present(len(running), dict.fromkeys(sorted(waiting)))
        for pod in running:
            self._use_pod(0.0, pod, pod.node, +1)

    def _measure(self) -> None:
        self._shares = {name: usage.shares(self._now) for name, usage in self._usage.items()}

    # -- submissions

    def _submit(self, submission: Submission) -> Batch | None:
        if self._mode is Mode.FCFS and self._held_back:
            self._waiting.append(submission)
            return None
        self._held_back = True
        return self._submitted(submission)

    def _submitted(self, submission: Submission) -> Batch:
        created = int(self._epoch + submission.at_seconds)
        pod_class = self._classes.get(submission.requests)
        new: tuple[PodClass, ...] = ()
        if pod_class is None:
            pod_class = self._classes[submission.requests] = identified(PodClass("", submission.requests))
            new = (pod_class,)
        gang, by_pods = gang_id(submission), self._mode is Mode.POD_BY_POD
        priority = 0 if self._mode is Mode.FCFS else submission.priority
        facts = GangFacts(
            gang,
            DIALECT,
            submission.namespace,
            submission.name,
            incarnation=gang,
            minimum=submission.minimum or submission.members,
            priority=priority,
            created_seconds=created,
            constraints=submission.constraints,
        )
        pods = tuple(
            PodFacts(
                pod_id(gang, index),
                submission.namespace,
                f"{submission.name}-{index}",
                pod_class.id,
                gang="" if by_pods else gang,
                priority=priority,
                created_seconds=created,
                expected_seconds=0.0 if by_pods else submission.duration_seconds,
            )
            for index in range(submission.members)
        )
        return Batch(pod_classes=new, gangs=() if by_pods else (facts,), pods=pods)

    def _next_in_line(self) -> Batch | None:
        """The gang ahead has started: the next one is tried."""
        self._held_back = bool(self._waiting)
        return self._submitted(self._waiting.popleft()) if self._waiting else None

    def _finish(self, gang: str, began: float) -> Batch | None:
        """A gang of which pods are placed one by one has run for its duration, unless one was evicted meanwhile."""
        if self._whole_since.get(gang) != began:
            return None
        del self._whole_since[gang]
        members = self._runs[gang].submission.members
        first = [pod_id(gang, index) for index in range(members)]
        pods = [self.cluster.pods[self._replaced.pop(uid, uid)] for uid in first]
        self._observe(self._epoch + self._now, Ended(tuple(pod for pod in pods if pod.node)))
        return Batch(removed_pods=tuple(pod.uid for pod in pods))

    # -- observations

    @property
    def _now(self) -> float:
        assert self._player is not None
        return self._player.now - self._epoch

    def _observe(self, now: float, happening: Happening) -> None:
        at = now - self._epoch
        match happening:
            case Started(_, nodes):
                by_gang: defaultdict[str, list[str]] = defaultdict(list)
                for uid, node in nodes.items():
                    if (gang := gang_of_pod(uid)) in self._runs:
                        by_gang[gang].append(node)
                    else:
                        self._use_pod(at, self.cluster.pods[uid], node, +1)
                        self._present_started(at, self.cluster.pods[uid])
                for gang, some in by_gang.items():
                    self._use(at, gang, some, +1)
                    self._started(at, gang)
            case Evicted(_, pods, preemptor, again):
                if self._mode is Mode.POD_BY_POD:
                    self._restart(pods, again)
                for gang, gone in self._by_gang(at, pods).items():
                    run = self._runs[gang]
                    run.evicted_pods += len(gone)
                    run.preemptions += bool(preemptor)
                    self._use(at, gang, [pod.node for pod in gone if pod.node], -1)
            case Ended(pods):
                for gang, gone in self._by_gang(at, pods).items():
                    self._use(at, gang, [pod.node for pod in gone], -1)
                    if not self._bound[gang]:
                        self._runs[gang].ended = at
                        self._ended += 1
            case Report():
                pass

    def _restart(self, evicted: Iterable[PodFacts], again: Iterable[PodFacts]) -> None:
        """Pods of gangs that are placed one by one were evicted: these run anew once they are whole."""
        for pod in evicted:
            self._whole_since.pop(gang_of_pod(pod.uid), None)
        for pod in again:
            self._replaced[pod.uid.partition("#")[0]] = pod.uid

    def _started(self, at: float, gang: str) -> None:
        run = self._runs[gang]
        submission, player = run.submission, self._player
        assert player is not None
        if self._bound[gang] < (submission.minimum or submission.members):
            return
        if run.first_started is None:
            run.first_started = at
            if self._mode is Mode.FCFS:
                player.at(self._epoch + at, self._next_in_line)
        if self._mode is Mode.POD_BY_POD and gang not in self._whole_since:
            self._whole_since[gang] = at
            player.at(self._epoch + at + submission.duration_seconds, lambda: self._finish(gang, at))

    def _use(self, at: float, gang: str, nodes: Sequence[str], sign: int) -> None:
        self._bound[gang] += sign * len(nodes)
        for name, amount in self._runs[gang].submission.requests:
            if name in self._usage:
                self._usage[name].change(at, sign * amount * len(nodes))
        for node in nodes:
            self._occupy(at, node, sign)

    def _use_pod(self, at: float, pod: PodFacts, node: str, sign: int) -> None:
        """A pod of the snapshot uses its node, or not any more."""
        for name, amount in self.cluster.pod_classes[pod.class_id].requests:
            if name in self._usage:
                self._usage[name].change(at, sign * amount)
        self._occupy(at, node, sign)

    def _occupy(self, at: float, node: str, sign: int) -> None:
        before = self._pods_on[node]
        self._pods_on[node] = before + sign
        if before == 0 or before + sign == 0:
            for usage in self._usage.values():
                usage.occupy(at, node, idle=before + sign == 0)

    def _present_started(self, at: float, pod: PodFacts) -> None:
        waiting, gang = self._present.waiting if self._present is not None else {}, pod.gang or pod.uid
        if gang in waiting and waiting[gang] is None:
            waiting[gang] = at

    def _by_gang(self, at: float, pods: Iterable[PodFacts]) -> dict[str, list[PodFacts]]:
        """Pods of submissions by gang; others free their nodes."""
        found: defaultdict[str, list[PodFacts]] = defaultdict(list)
        for pod in pods:
            if (gang := gang_of_pod(pod.uid)) in self._runs:
                found[gang].append(pod)
            elif pod.node:
                self._use_pod(at, pod, pod.node, -1)
        return found


def gang_id(submission: Submission) -> str:
    """Id of the gang of a submission."""
    return f"{DIALECT}/{submission.id}"


def pod_id(gang: str, index: int) -> str:
    """Uid of a member; those that replace it have a suffix."""
    return f"{gang}/{index}"


def gang_of_pod(uid: str) -> str:
    """Id of the gang of a submission of which this is a pod."""
    return uid.rpartition("/")[0]


@dataclass(frozen=True)
class Start:
    """The cluster at the begin, and what the coordinator knows of it."""

    batch: Batch
    unix_seconds: float = float(EPOCH)
    records: tuple[Record, ...] = ()
    term_state: TermState | None = None
    is_snapshot: bool = False


def at_snapshot(snapshot: Snapshot) -> Start:
    """The cluster of a snapshot."""
    return Start(snapshot.batch, snapshot.unix_seconds, snapshot.records, snapshot.term_state, is_snapshot=True)


def uniform_nodes(count: int, allocatable: Amounts, rack_size: int) -> Start:
    """Equal nodes "node-00000", ... in racks of `rack_size` (0: no racks), with their topology tree."""
    nodes = []
    for index in range(count):
        name = f"node-{index:05}"
        labels = {HOSTNAME: name}
        if rack_size:
            labels[RACK] = f"rack-{index // rack_size:04}"
        nodes.append(NodeFacts(name, uid=name, allocatable=allocatable, labels=labels))
    levels = (TreeLevel(RACK, RACK), TreeLevel("node")) if rack_size else (TreeLevel("node"),)
    return Start(Batch(nodes=tuple(nodes), trees=(TopologyTree("cluster", levels, default=True),)))
