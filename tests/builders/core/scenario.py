"""Scenarios of the coordinator's core: a cluster, a solver, etcd and a binder, in memory and controlled by the test.

    scenario = Scenario(nodes={"n": 4})
    scenario.add(gang("a").needing(5).of(5))
    scenario.run()
    assert scenario.bound("a") == 0

Every effect waits in `scenario.under_way` until it is carried out: by `run()` in order, or one by one in any order by
`do()`. The invariants of the design are checked at every bind and at rest.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final, TypeVar

from msgspec.structs import replace as changed

from builders.core.device_claims import DeviceClaimWrites
from builders.core.invariants import check_bind, check_composites, check_evict, check_quiet
from builders.core.objects import Cluster, node
from builders.core.solver import first_fit
from builders.core.start_checks import check_claims_of_start
from builders.core.step_limit import Spins, StepLimit, WakeLimit
from builders.gangs.facts import CoreGang
from builders.gangs.labels import label_set_of, selectors_named
from muster.coordinator.core.effects import (
    Bind,
    ClaimEnded,
    Deallocate,
    Effect,
    Evict,
    MarkTimedOut,
    Persist,
    Phase,
    PhaseChanged,
    Report,
    Solve,
    StageChanged,
)
from muster.coordinator.core.events import (
    BindCallFailed,
    BindOutcome,
    BindResult,
    BindResults,
    DeallocateCallFailed,
    DeallocateResults,
    Delta,
    Event,
    EvictCallFailed,
    EvictOutcome,
    EvictResult,
    EvictResults,
    Now,
    Persisted,
    PodName,
    Record,
    RecordState,
    Recovered,
    Replicas,
    Rules,
    Seat,
    Snapshot,
    Solved,
    Tick,
    ViewLost,
)
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.machine import DEFAULTS, Machine
from muster.coordinator.core.report.explain import progress_of
from muster.dialects.progress import Progress, Stage
from muster.gangs.facts import (
    Batch,
    CompositeFacts,
    DeviceObject,
    DisruptionBudget,
    GangFacts,
    NodeFacts,
    PodClass,
    PodFacts,
    PodPhase,
    StaticClaim,
    StaticVolume,
    TopologyTree,
)
from muster.gangs.solve import SolveResult

REVISION: Final = 1 << 40
"""The API server's first revision. A restore halves it, and no scenario has so many changes that they pass it again."""

Under = TypeVar("Under", Solve, Persist, Bind, Deallocate, Evict, MarkTimedOut)


class Scenario:
    """One cluster, and a coordinator that may crash and restart."""

    def __init__(self, nodes: dict[str, int] | None = None, *, start: bool = True, rules: Rules = DEFAULTS) -> None:
        self.rules = rules
        self.cluster = Cluster({name: node(name, cpu) for name, cpu in (nodes or {}).items()}, revision=REVISION)
        self.etcd: dict[str, Record] = {}
        self.permitted_with: defaultdict[str, set[str]] = defaultdict(set)
        """Gangs that had a permit when this one was written, by gang."""
        self.begun: set[str] = set()
        """Gangs of which a member had a node when a Bind of the permit was sent."""
        self.sent_with: defaultdict[str, set[str]] = defaultdict(set)
        """Gangs that were in one Bind with this one, by gang."""
        self.permitted_in: dict[str, tuple[CompositeFacts, ...]] = {}
        """Composites in which gangs were when they got their permit."""
        self.now = 1000.0
        self.unix_ahead = 1_700_000_000.0
        """Wall clock minus monotonic clock; set it to let the wall clock jump."""
        self.machine: Machine | None = None
        self._limit: StepLimit | None = None
        self.counts_calls = False
        """Steps are limited by the calls that they make, which takes time."""
        self.under_way: list[Effect] = []
        self.claims = DeviceClaimWrites(self)
        self.reports: list[Report] = []
        self.claims_ended: list[tuple[str, str]] = []
        """Kinds and reasons of claims on capacity that ended without a start."""
        self.phases: defaultdict[str, list[Phase | None]] = defaultdict(list)
        self.stages: defaultdict[str, list[Stage]] = defaultdict(list)
        """Stages of gangs in order, as reported to dialects."""
        self.solves: list[Solve] = []
        self.binds: list[Bind] = []
        self.bind_failures: Counter[str] = Counter()
        self.volume_failures: Counter[str] = Counter()
        self.made_volumes: set[str] = set()
        """Pods whose volumes were made by a call to binding, or of whose claims the coordinator was not told before it
        sent one.
        """
        self.evict_failures: Counter[str] = Counter()
        self.graceful = False
        """Evicted pods keep terminating until `finish_deletions()`."""
        self.lagging = False
        """Changes of the cluster wait in `stream` until `deliver()`."""
        self.stream: list[Event] = []
        self.undone_binds: frozenset[str] = frozenset()
        """Pods that were not bound in the backup of the API server that was restored last."""
        self.moved_from: dict[str, str] = {}
        """The gang of which a pod was before somebody moved it to another one."""
        self.shared_nodes: set[str] = set()
        """Nodes on which another scheduler places pods: there I3 does not depend on Muster alone."""
        self.replicas = 1
        """Number of placement replicas, and so of concurrent solves."""
        self.solver: Callable[[Solve], tuple[SolveResult, ...]] = self.first_fit
        if start:
            self.start()

    # -- the coordinator

    def start(self) -> None:
        """A coordinator becomes leader."""
        self.machine = Machine(self.rules)
        self._limit = StepLimit(self.machine)
        self.under_way = []
        self.stream = []
        self.tell(Recovered(tuple(self.etcd.values())), Replicas(self.replicas), Snapshot(self.cluster.whole()))

    def crash(self) -> None:
        """The coordinator dies with all effects in flight; calls to binding may or may not have been carried out."""
        self.machine = None
        self.under_way = []

    def blink(self) -> None:
        """The stream of cluster-state is lost, with pending changes, and comes back with a snapshot."""
        self.stream = []
        self.tell(ViewLost("cluster-state is away"))
        self.tell(Snapshot(self.cluster.whole()))

    def restore(self, backup: Cluster | None = None) -> None:
        """The API server's etcd is restored from a backup, or from one with the same objects: revisions are lower."""
        self.take_back(backup or self.cluster)
        self.blink()

    def take_back(self, backup: Cluster) -> None:
        """The API server's objects are those of a backup; nobody is told. Pods may have got conditions since then."""
        newest, self.cluster = self.cluster, backup.copy()
        for uid in newest.pods.keys() & self.cluster.pods.keys():
            older = self.cluster.pods[uid]
            self.cluster.pods[uid] = changed(older, revision=older.revision - 1)
        self.cluster.former_classes.update({**newest.former_classes, **newest.classes})
        self.cluster.revision = min(newest.revision // 2, backup.revision)
        self.undone_binds = frozenset(pod.uid for pod in self.cluster.pods.values() if not pod.node)

    def scale(self, replicas: int) -> None:
        """Changes the number of placement replicas."""
        self.replicas = replicas
        self.tell(Replicas(replicas))

    def deliver(self, most: int = 1_000_000) -> None:
        """Delivers delayed changes."""
        for _ in range(min(most, len(self.stream))):
            self.tell(self.stream.pop(0))

    def tell(self, *events: Event) -> None:
        """Gives events to the coordinator."""
        if self.machine is None or self._limit is None:
            return
        step = self._limit.counted_step if self.counts_calls else self._limit.step
        for effect in step(events, Now(self.now, self.unix)):
            self.take(effect)

    def take(self, effect: Effect) -> None:
        """Takes an effect of the coordinator."""
        match effect:
            case PhaseChanged():
                self.phases[effect.gang].append(effect.after)
            case StageChanged():
                if (progress := self._progress(effect.gang)) is not None:
                    self.stages[effect.gang.rpartition("/")[2]].append(progress.stage)
            case Report():
                self.reports.append(effect)
                self._write_nominated_nodes(effect)
            case ClaimEnded(kind, reason):
                self.claims_ended.append((kind, reason))
            case Solve() | Persist() | Bind() | Deallocate() | Evict() | MarkTimedOut():
                if isinstance(effect, Solve):
                    self.solves.append(effect)
                elif isinstance(effect, Bind):
                    self._note_sent(effect)
                elif isinstance(effect, Evict):
                    check_evict(self.etcd, effect)
                self.under_way.append(effect)

    def _note_sent(self, effect: Bind) -> None:
        self.binds.append(effect)
        untold = self.untold_pods() & {seat.uid for seat in effect.seats}
        self.made_volumes.update(uid for uid in untold if self.cluster.pods[uid].claims)
        placed = {pod.gang for pod in self.cluster.pods.values() if pod.node}
        self.begun.update(placed.intersection(effect.gangs))
        for gang in effect.gangs:
            self.sent_with[gang].update(effect.gangs)

    @property
    def unix(self) -> float:
        """The wall clock."""
        return self.unix_ahead + self.now

    def wake(self) -> None:
        """Wakes the coordinator if it asked to be woken by now."""
        if self.machine is not None and (wake := self.machine.next_wake()) is not None and wake <= self.now:
            self.tell(Tick())

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, waking the coordinator when it asked for it."""
        self.run_effects()
        end, limit = self.now + seconds, WakeLimit(seconds)
        while self.machine is not None and (wake := self.machine.next_wake()) is not None and wake <= end:
            limit.wake(wake)
            self.now = max(self.now, wake)
            self.tell(Tick())
            self.run_effects()
        self.now = end
        self.tell(Tick())
        self.run_effects()

    def run(self) -> None:
        """Carries out all effects."""
        self.run_effects()
        if self.machine is not None:
            check_quiet(self.machine.cache)

    def run_effects(self, most: int = 20_000) -> None:
        while self.under_way:
            self.do(0)
            most -= 1
            if most <= 0:
                raise Spins("effects follow each other without end")

    def do(self, index: int) -> None:
        """Carries out one of the effects in flight."""
        effect = self.under_way.pop(index)
        match effect:
            case Solve():
                self.tell(Solved(effect.solve_id, self.solver(effect)))
            case Persist():
                self.persist(effect)
                gangs = self.machine.cache.gangs if self.machine is not None else {}
                started = {id_ for id_, gang in gangs.items() if gang.permitted}
                self.tell(Persisted(effect.persist_id))
                check_composites(gangs, started, {record.gang for record in effect.puts})
            case Bind():
                self.tell(BindResults(self.bind_all(effect)))
            case Deallocate():
                self.tell(DeallocateResults(effect.gang, self.claims.deallocate(effect)))
            case Evict():
                self.tell(EvictResults(tuple(self.evict(pod) for pod in effect.pods)))
            case MarkTimedOut():
                self.mark(effect)

    def persist(self, effect: Persist) -> None:
        permits = {record.gang for record in effect.puts if record.state is not RecordState.UNPERMITTED}
        for record in effect.puts:
            self.etcd[record.gang] = record
            if record.gang in permits:
                if record.gang in self.cluster.gangs:
                    self.permitted_in.setdefault(record.gang, self.cluster.gangs[record.gang].composites)
                durable = (self.etcd.get(partner) for partner in record.group)
                others = {other.gang for other in durable if other and other.state is not RecordState.UNPERMITTED}
                gang = self.machine.cache.gangs.get(record.gang) if self.machine is not None else None
                repaired = record.group if gang is not None and gang.started else ()
                self.permitted_with[record.gang] |= {*permits, *others, *repaired}
            else:
                self.permitted_with.pop(record.gang, None)
                self.permitted_in.pop(record.gang, None)
                self.begun.discard(record.gang)
        for key in effect.deletes:
            self.etcd.pop(key, None)
            self.permitted_in.pop(key, None)
            self.begun.discard(key)

    def untold_pods(self) -> set[str]:
        """Pods of whose newest state the coordinator was not told."""
        batches = [event.batch for event in self.stream if isinstance(event, Delta | Snapshot)]
        return {pod.uid for batch in batches for pod in batch.pods} & self.cluster.pods.keys()

    def bind_all(self, effect: Bind) -> tuple[BindResult, ...]:
        """Binds as the binding service does: with `claims_first`, a missing volume withholds all other pods."""
        failing = self.unready(effect)
        results = []
        for seat in effect.seats:
            if seat.uid in failing:
                results.append(BindResult(seat.uid, BindOutcome.FAILED, message="its claims are not ready"))
            elif failing and effect.claims_first:
                results.append(BindResult(seat.uid, BindOutcome.WITHHELD, message="a volume is missing"))
            else:
                results.append(self.bind(seat))
        if effect.devices or effect.extended:
            self.claims.release(effect, results)
        return tuple(results)

    def unready(self, effect: Bind, *, late: bool = False) -> list[str]:
        """Has the claims of a call made. Returns the pods of which one is not ready. `late`: the call is of a former
        leader.
        """
        failing = [uid for uid in effect.claims if self.volume_failures[uid] > 0]
        for uid in failing:
            self.volume_failures[uid] -= 1
        failing += [seat.uid for seat in effect.seats if self._lost_volume(seat) and seat.uid not in failing]
        self.made_volumes.update(effect.claims.keys() - set(failing))
        if effect.devices or effect.extended:
            failing += self.claims.write(effect, late=late)
        return failing

    def _lost_volume(self, seat: Seat) -> bool:
        """A volume that was chosen for the seat is taken by somebody else."""
        pod = self.cluster.pods.get(seat.uid)
        waits = pod is not None and not pod.node
        return waits and any(volume not in self.cluster.static_volumes for _, volume in seat.volumes)

    def bind(self, seat: Seat) -> BindResult:
        """Binds as the API server does, and checks the invariants."""
        pod = self.cluster.pods.get(seat.uid)
        if pod is None or pod.deleting:
            return BindResult(seat.uid, BindOutcome.GONE)
        if pod.node:
            outcome = BindOutcome.BOUND if pod.node == seat.node else BindOutcome.CONFLICT
            return BindResult(seat.uid, outcome, pod.node)
        if self.bind_failures[seat.uid] > 0:
            self.bind_failures[seat.uid] -= 1
            return BindResult(seat.uid, BindOutcome.FAILED, message="500: try again")
        known = self.machine.cache.gangs if self.machine is not None else {}
        check_bind(self, known, pod, seat)
        check_claims_of_start(self, pod, seat)
        if self.cluster.device_objects:
            self.claims.check_bound(pod, seat)
        self.change(
            pods=[self._running(pod, seat.node)],
            remove_static_volumes=[volume for _, volume in seat.volumes],
            remove_static_claims=[f"{pod.namespace}/{claim}" for claim in pod.claims],
        )
        return BindResult(seat.uid, BindOutcome.BOUND, seat.node)

    def evict(self, name: PodName) -> EvictResult:
        """Evicts as the API server does: budgets hold, and unless `graceful` the pod is removed at once."""
        pod = self.cluster.pods.get(name.uid)
        if pod is None or pod.phase.ended:
            return EvictResult(name.uid, EvictOutcome.GONE)
        if pod.deleting:
            return EvictResult(name.uid, EvictOutcome.EVICTED)
        if self.evict_failures[name.uid] > 0:
            self.evict_failures[name.uid] -= 1
            return EvictResult(name.uid, EvictOutcome.FAILED, "500: try again")
        budgets = [self.cluster.budgets[id_] for id_ in pod.budgets if id_ in self.cluster.budgets]
        if any(budget.allowed < 1 for budget in budgets):
            return EvictResult(name.uid, EvictOutcome.FAILED, "429: it would violate the pod's disruption budget")
        if budgets:
            self.change(budgets=[changed(budget, allowed=budget.allowed - 1) for budget in budgets])
        if self.graceful:
            self.change(pods=[changed(pod, deleting=True)])
        else:
            self.change(remove_pods=[pod.uid])
        return EvictResult(name.uid, EvictOutcome.EVICTED)

    def _write_nominated_nodes(self, report: Report) -> None:
        """Binding writes status.nominatedNodeName, unless the pod is bound; the coordinator learns of it by the way."""
        for condition in report.conditions:
            pod = self.cluster.pods.get(condition.uid)
            if pod is not None and not pod.node and pod.nominated_node != condition.nominated_node:
                self.cluster.put_pod(changed(pod, nominated_node=condition.nominated_node))

    def mark(self, effect: MarkTimedOut) -> None:
        """Binding writes or removes the annotation."""
        there = [self.cluster.pods[name.uid] for name in effect.pods if name.uid in self.cluster.pods]
        differ = [changed(pod, timed_out=effect.timed_out) for pod in there if pod.timed_out is not effect.timed_out]
        if differ:
            self.change(pods=differ)

    def break_call(self, index: int) -> None:
        """Binding dies before it carries out the call."""
        effect = self.under_way.pop(index)
        assert isinstance(effect, Bind | Deallocate | Evict)
        if isinstance(effect, Deallocate):
            uids = tuple(each.uid for each in effect.claims)
            self.tell(DeallocateCallFailed(effect.gang, uids, "connection refused"))
        elif isinstance(effect, Bind):
            self.tell(BindCallFailed(tuple(seat.uid for seat in effect.seats), "connection refused"))
        else:
            self.tell(EvictCallFailed(tuple(pod.uid for pod in effect.pods), "connection refused"))

    def first_fit(self, solve: Solve) -> tuple[SolveResult, ...]:
        """Placement."""
        return first_fit(self.cluster, solve)

    # -- actions of users and other schedulers

    def change(
        self,
        *,
        nodes: list[NodeFacts] | None = None,
        pods: list[PodFacts] | None = None,
        gangs: list[GangFacts] | None = None,
        budgets: list[DisruptionBudget] | None = None,
        trees: list[TopologyTree] | None = None,
        remove_nodes: list[str] | None = None,
        remove_pods: list[str] | None = None,
        remove_gangs: list[str] | None = None,
        remove_trees: list[str] | None = None,
        classes: list[PodClass] | None = None,
        remove_classes: list[str] | None = None,
        remove_selectors: list[str] | None = None,
        remove_label_sets: list[str] | None = None,
        static_volumes: list[StaticVolume] | None = None,
        static_claims: list[StaticClaim] | None = None,
        remove_static_volumes: list[str] | None = None,
        remove_static_claims: list[str] | None = None,
        device_objects: list[DeviceObject] | None = None,
    ) -> None:
        """Changes the cluster and tells the coordinator."""
        cluster = self.cluster
        if cluster.device_objects and (pods or remove_pods):
            device_objects = [*(device_objects or []), *self.claims.of_ended(remove_pods or [], pods or [])]
        cluster.nodes.update((facts.name, facts) for facts in nodes or [])
        selectors = [each for each in selectors_named(classes or []) if each.id not in cluster.selectors]
        labels = {pod.label_set for pod in pods or [] if pod.label_set} - cluster.label_sets.keys()
        label_sets = [label_set_of(id_) for id_ in sorted(labels)]
        cluster.classes.update((each.id, each) for each in classes or [])
        cluster.selectors.update((each.id, each) for each in selectors)
        cluster.label_sets.update((each.id, each) for each in label_sets)
        for pod in pods or []:
            self.cluster.put_pod(pod)
        self.cluster.gangs.update((facts.id, facts) for facts in gangs or [])
        self.cluster.budgets.update((budget.id, budget) for budget in budgets or [])
        self.cluster.trees.update((tree.name, tree) for tree in trees or [])
        for name in remove_trees or []:
            self.cluster.trees.pop(name, None)
        self.cluster.static_volumes.update((volume.name, volume) for volume in static_volumes or [])
        self.cluster.static_claims.update((claim.id, claim) for claim in static_claims or [])
        for name in remove_static_volumes or []:
            self.cluster.static_volumes.pop(name, None)
        for id_ in remove_static_claims or []:
            self.cluster.static_claims.pop(id_, None)
        for each in device_objects or []:
            self.cluster.device_objects.pop((each.kind, each.name), None)
            if each.content:
                self.cluster.device_objects[each.kind, each.name] = each
        for name in remove_nodes or []:
            self.cluster.nodes.pop(name, None)
        for uid in remove_pods or []:
            self.cluster.drop_pod(uid)
        for gang_id in remove_gangs or []:
            self.cluster.gangs.pop(gang_id, None)
        for class_id in remove_classes or []:
            self.cluster.drop_class(class_id)
        for id_ in remove_selectors or []:
            self.cluster.selectors.pop(id_, None)
        for id_ in remove_label_sets or []:
            self.cluster.label_sets.pop(id_, None)
        self.cluster.revision += 1
        batch = Batch(
            changed={"pods": self.cluster.revision},
            through={"pods": self.cluster.revision},
            nodes=tuple(nodes or ()),
            pods=tuple(pods or ()),
            gangs=tuple(gangs or ()),
            budgets=tuple(budgets or ()),
            trees=tuple(trees or ()),
            removed_trees=tuple(remove_trees or ()),
            removed_nodes=tuple(remove_nodes or ()),
            removed_pods=tuple(remove_pods or ()),
            removed_gangs=tuple(remove_gangs or ()),
            pod_classes=tuple(classes or ()),
            selectors=tuple(selectors),
            label_sets=tuple(label_sets),
            removed_pod_classes=tuple(remove_classes or ()),
            removed_selectors=tuple(remove_selectors or ()),
            removed_label_sets=tuple(remove_label_sets or ()),
            static_volumes=tuple(static_volumes or ()),
            removed_static_volumes=tuple(remove_static_volumes or ()),
            static_claims=tuple(static_claims or ()),
            removed_static_claims=tuple(remove_static_claims or ()),
            device_objects=tuple(device_objects or ()),
        )
        if self.lagging:
            self.stream.append(Delta(batch))
        else:
            self.tell(Delta(batch))

    def add(self, *builders: CoreGang) -> None:
        for builder in builders:
            self.change(gangs=[builder.gang_facts()], pods=builder.pods())

    def delete(self, builder: CoreGang) -> None:
        self.change(remove_pods=[pod.uid for pod in builder.pods()], remove_gangs=[builder.id])

    def finish_deletions(self) -> None:
        """Removes terminating pods."""
        gone = [pod.uid for pod in self.cluster.pods.values() if pod.deleting]
        if gone:
            self.change(remove_pods=gone)

    def take_marks_off(self, builder: CoreGang) -> None:
        """A user removes the timeout marks from the gang's pods."""
        marked = [pod for pod in self.cluster.pods.values() if pod.gang == builder.id and pod.timed_out]
        self.change(pods=[changed(pod, timed_out=False) for pod in marked])

    def set_budget(self, name: str, allowed: int) -> None:
        """Sets how many evictions a PodDisruptionBudget ("namespace/name") allows now."""
        self.change(budgets=[DisruptionBudget(name, allowed)])

    def intrude(self, pod: PodFacts, node_name: str) -> None:
        """Another scheduler runs a pod of its own on a node."""
        self.shared_nodes.add(node_name)
        foreign = changed(pod, node=node_name, ours=False, scheduler_name="default-scheduler", phase=PodPhase.RUNNING)
        self.change(pods=[foreign])

    def add_pods(self, *pods: PodFacts) -> None:
        self.change(pods=list(pods))

    def bind_elsewhere(self, uid: str, node_name: str) -> None:
        """Another scheduler binds a pod."""
        self.change(pods=[self._running(self.cluster.pods[uid], node_name)])

    def _running(self, pod: PodFacts, node_name: str) -> PodFacts:
        return changed(pod, node=node_name, phase=PodPhase.RUNNING, started_seconds=int(self.unix), nominated_node="")

    # -- observations

    def bound(self, name: str, namespace: str = "default") -> int:
        """Number of bound pods of the gang."""
        return sum(1 for pod in self._pods_of(name, namespace) if pod.seated)

    @property
    def leader(self) -> Machine:
        assert self.machine is not None
        return self.machine

    def only(self, kind: type[Under]) -> Under:
        """The only effect in flight, which is of this kind."""
        (effect,) = self.under_way
        assert isinstance(effect, kind)
        return effect

    def gang(self, name: str, namespace: str = "default") -> Gang:
        return self.leader.cache.gangs[f"test/{namespace}/{name}"]

    def progress(self, name: str, namespace: str = "default") -> Progress:
        """Progress of the gang."""
        progress = self._progress(f"test/{namespace}/{name}")
        assert progress is not None
        return progress

    def _progress(self, gang_id: str) -> Progress | None:
        gang = self.leader.cache.gangs.get(gang_id)
        return progress_of(gang, self.leader.cache) if gang is not None else None

    def notes(self) -> list[str]:
        """All texts of events and conditions."""
        return [event.note for report in self.reports for event in report.events] + [
            condition.message for report in self.reports for condition in report.conditions
        ]

    def _pods_of(self, name: str, namespace: str) -> list[PodFacts]:
        return [pod for pod in self.cluster.pods.values() if pod.gang == f"test/{namespace}/{name}"]
