"""Stories about the coordinator's core: a cluster, a solver, etcd and a binder, in memory and under the test's control.

    story = Story(nodes={"n": 4})
    story.add(gang("a").minimum(5).of(5))
    story.run()
    assert story.bound("a") == 0

Every effect waits in `story.under_way` until it is done: by `run()` in order, or one by one in any order by `do()`. The
invariants of the design are checked at every bind and whenever all is quiet.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace as changed

from builders.story_cast import Cluster, GangBuilder, node
from muster.coordinator.core.events import (
    Bind,
    BindCallFailed,
    BindOutcome,
    BindResult,
    BindResults,
    Changes,
    Effect,
    Event,
    Now,
    Persist,
    Persisted,
    Phase,
    PhaseChanged,
    Record,
    Recovered,
    Report,
    Seat,
    Snapshot,
    Solve,
    Solved,
    SolveOutcome,
    SolveResult,
    Tick,
    ViewLost,
)
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.model import Gang
from muster.gangs.facts import Batch, GangFacts, NodeFacts, PodFacts, PodPhase
from muster.gangs.placing import Explanation, GangToPlace, Run

Under = TypeVar("Under", Solve, Persist, Bind)


class Story:
    """One cluster, and a coordinator that may crash and start anew."""

    def __init__(self, nodes: dict[str, int] | None = None, *, start: bool = True) -> None:
        self.cluster = Cluster({name: node(name, cpu) for name, cpu in (nodes or {}).items()})
        self.etcd: dict[str, Record] = {}
        self.permitted_with: defaultdict[str, set[str]] = defaultdict(set)
        """Gangs whose records were written together, by gang."""
        self.now = 1000.0
        self.machine: Machine | None = None
        self.under_way: list[Effect] = []
        self.reports: list[Report] = []
        self.phases: defaultdict[str, list[Phase | None]] = defaultdict(list)
        self.solves: list[Solve] = []
        self.bind_failures: Counter[str] = Counter()
        self.lagging = False
        """What the cluster tells waits in `stream` until `deliver()`."""
        self.stream: list[Event] = []
        self.shared_nodes: set[str] = set()
        """Nodes on which somebody else puts pods too: there I3 is not ours alone to keep."""
        self.solver: Callable[[Solve], tuple[SolveResult, ...]] = self.first_fit
        if start:
            self.start()

    # -- the coordinator

    def start(self) -> None:
        """A coordinator becomes leader."""
        self.machine = Machine()
        self.under_way = []
        self.stream = []
        self.tell(Recovered(tuple(self.etcd.values())), Snapshot(self.cluster.whole()))

    def crash(self) -> None:
        """It is gone, with all that was under way; what binding was sent may or may not have happened."""
        self.machine = None
        self.under_way = []

    def blink(self) -> None:
        """Its view is lost, with what was on its way, and comes back whole."""
        self.stream = []
        self.tell(ViewLost("cluster-state is away"))
        self.tell(Snapshot(self.cluster.whole()))

    def deliver(self, most: int = 1_000_000) -> None:
        """Let it see what waits in the stream."""
        due, self.stream = self.stream[:most], self.stream[most:]
        for event in due:
            self.tell(event)

    def tell(self, *events: Event) -> None:
        """Let it know."""
        if self.machine is None:
            return
        effects = self.machine.step(events, Now(self.now, 1_700_000_000 + self.now))
        for effect in effects:
            if isinstance(effect, PhaseChanged):
                self.phases[effect.gang].append(effect.after)
            elif isinstance(effect, Report):
                self.reports.append(effect)
            elif isinstance(effect, Solve | Persist | Bind):
                if isinstance(effect, Solve):
                    self.solves.append(effect)
                self.under_way.append(effect)

    def wake(self) -> None:
        """If it asked to be woken by now, wake it."""
        if self.machine is not None and (wake := self.machine.next_wake()) is not None and wake <= self.now:
            self.tell(Tick())

    def pass_time(self, seconds: float) -> None:
        """Let time pass, waking the coordinator when it asks for it."""
        self.run_effects()
        end = self.now + seconds
        while self.machine is not None and (wake := self.machine.next_wake()) is not None and wake <= end:
            self.now = max(self.now, wake)
            self.tell(Tick())
            self.run_effects()
        self.now = end
        self.tell(Tick())
        self.run_effects()

    def run(self) -> None:
        """Do all there is to do, at once."""
        self.run_effects()
        self.check_quiet()

    def run_effects(self, most: int = 100_000) -> None:
        while self.under_way:
            self.do(0)
            most -= 1
            assert most > 0, "the coordinator spins"

    def do(self, index: int) -> None:
        """Do one of the things under way."""
        effect = self.under_way.pop(index)
        match effect:
            case Solve():
                self.tell(Solved(effect.solve_id, self.solver(effect)))
            case Persist():
                self.persist(effect)
                self.tell(Persisted(effect.persist_id))
            case Bind():
                self.tell(BindResults(tuple(self.bind(seat) for seat in effect.seats)))

    def persist(self, effect: Persist) -> None:
        for record in effect.puts:
            self.etcd[record.gang] = record
            self.permitted_with[record.gang] |= {other.gang for other in effect.puts}
        for key in effect.deletes:
            self.etcd.pop(key, None)

    def bind(self, seat: Seat) -> BindResult:
        """The API server's part, with all invariants watched."""
        pod = self.cluster.pods.get(seat.uid)
        if pod is None or pod.deleting:
            return BindResult(seat.uid, BindOutcome.GONE)
        if pod.node:
            outcome = BindOutcome.BOUND if pod.node == seat.node else BindOutcome.CONFLICT
            return BindResult(seat.uid, outcome, pod.node)
        if self.bind_failures[seat.uid] > 0:
            self.bind_failures[seat.uid] -= 1
            return BindResult(seat.uid, BindOutcome.FAILED, message="500: try again")
        self.check_bind(pod, seat)
        self.change(pods=[changed(pod, node=seat.node, phase=PodPhase.RUNNING)])
        return BindResult(seat.uid, BindOutcome.BOUND, seat.node)

    def break_bind_call(self, index: int) -> None:
        """Binding dies before it does anything."""
        effect = self.under_way.pop(index)
        assert isinstance(effect, Bind)
        self.tell(BindCallFailed(tuple(seat.uid for seat in effect.seats), "connection refused"))

    # -- a solver that packs nodes in the order of their names

    def first_fit(self, solve: Solve) -> tuple[SolveResult, ...]:
        free = self.cluster.free()
        for reservation in solve.reservations:
            for uid in reservation.pod_uids:
                pod = self.cluster.pods.get(uid)
                if reservation.node in free and not (pod is not None and pod.node):
                    free[reservation.node] -= self._cpu(reservation.class_id)
        for name, facts in self.cluster.nodes.items():
            if facts.unschedulable or not facts.ready:
                free[name] = 0
        results = []
        for group in solve.groups:
            trial, runs = dict(free), list[Run]()
            needed = {asked.id: self._smallest(asked, asked.minimum) for asked in group.gangs}
            fit = {asked.id: self._fill(trial, asked, needed[asked.id], runs) for asked in group.gangs}
            short = [
                f"{fit[asked.id]} of {asked.minimum} members fit"
                for asked in group.gangs
                if fit[asked.id] < asked.minimum
            ]
            if short:
                results.append(
                    SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=Explanation(summary=short[-1]))
                )
                continue
            for asked in group.gangs:  # what is wanted beyond the minimum takes nothing from partners
                rest = [role.wanted - count for role, count in zip(asked.roles, needed[asked.id], strict=True)]
                self._fill(trial, asked, rest, runs)
            free = trial
            results.append(SolveResult(group.id, SolveOutcome.PLACED, tuple(runs)))
        return tuple(results)

    def _smallest(self, asked: GangToPlace, count: int) -> list[int]:
        """So many members by role, the smallest first."""
        counts = [0] * len(asked.roles)
        for index in sorted(range(len(counts)), key=lambda index: self._cpu(asked.roles[index].class_id)):
            counts[index] = min(asked.roles[index].wanted, count - sum(counts))
        return counts

    def _fill(self, free: dict[str, int], asked: GangToPlace, counts: list[int], runs: list[Run]) -> int:
        """Place so many members by role, the largest first, each on the fullest node that takes it; how many fit."""
        placed = 0
        for index in sorted(range(len(counts)), key=lambda index: -self._cpu(asked.roles[index].class_id)):
            cpu, left = self._cpu(asked.roles[index].class_id), counts[index]
            for name in sorted(free, key=lambda name: (free[name], name)):
                count = min(free[name] // cpu, left)
                if count > 0:
                    free[name] -= count * cpu
                    left -= count
                    placed += count
                    runs.append(Run(asked.id, index, name, count))
        return placed

    def _cpu(self, class_id: str) -> int:
        return dict(self.cluster.classes[class_id].requests)["cpu"]

    # -- what users and others do

    def change(
        self,
        *,
        nodes: list[NodeFacts] | None = None,
        pods: list[PodFacts] | None = None,
        gangs: list[GangFacts] | None = None,
        remove_nodes: list[str] | None = None,
        remove_pods: list[str] | None = None,
        remove_gangs: list[str] | None = None,
    ) -> None:
        """Change the cluster and let the coordinator see it."""
        self.cluster.nodes.update((facts.name, facts) for facts in nodes or [])
        for pod in pods or []:
            self.cluster.put_pod(pod)
        self.cluster.gangs.update((facts.id, facts) for facts in gangs or [])
        for name in remove_nodes or []:
            self.cluster.nodes.pop(name, None)
        for uid in remove_pods or []:
            self.cluster.drop_pod(uid)
        for gang_id in remove_gangs or []:
            self.cluster.gangs.pop(gang_id, None)
        batch = Batch(
            nodes=tuple(nodes or ()),
            pods=tuple(pods or ()),
            gangs=tuple(gangs or ()),
            removed_nodes=tuple(remove_nodes or ()),
            removed_pods=tuple(remove_pods or ()),
            removed_gangs=tuple(remove_gangs or ()),
        )
        if self.lagging:
            self.stream.append(Changes(batch))
        else:
            self.tell(Changes(batch))

    def add(self, *builders: GangBuilder) -> None:
        for builder in builders:
            self.change(gangs=[builder.gang_facts()], pods=builder.pods())

    def delete(self, builder: GangBuilder) -> None:
        self.change(remove_pods=[pod.uid for pod in builder.pods()], remove_gangs=[builder.id])

    def intrude(self, pod: PodFacts, node_name: str) -> None:
        """Another scheduler puts a pod of its own on a node."""
        self.shared_nodes.add(node_name)
        self.change(pods=[changed(pod, node=node_name, ours=False, phase=PodPhase.RUNNING)])

    def add_pods(self, *pods: PodFacts) -> None:
        self.change(pods=list(pods))

    def bind_elsewhere(self, uid: str, node_name: str) -> None:
        """Another scheduler binds a pod."""
        self.change(pods=[changed(self.cluster.pods[uid], node=node_name, phase=PodPhase.RUNNING)])

    # -- what is to be seen

    def bound(self, name: str, namespace: str = "default") -> int:
        """How many pods of the gang are bound."""
        return sum(1 for pod in self._pods_of(name, namespace) if pod.seated)

    @property
    def leader(self) -> Machine:
        assert self.machine is not None
        return self.machine

    def only(self, kind: type[Under]) -> Under:
        """The one effect that is under way, of this kind."""
        (effect,) = self.under_way
        assert isinstance(effect, kind)
        return effect

    def gang(self, name: str, namespace: str = "default") -> Gang:
        return self.leader.knowledge.gangs[f"test/{namespace}/{name}"]

    def notes(self) -> list[str]:
        """All that users were told, in events and conditions."""
        return [event.note for report in self.reports for event in report.events] + [
            condition.message for report in self.reports for condition in report.conditions
        ]

    def _pods_of(self, name: str, namespace: str) -> list[PodFacts]:
        return [pod for pod in self.cluster.pods.values() if pod.gang == f"test/{namespace}/{name}"]

    # -- invariants

    def check_bind(self, pod: PodFacts, seat: Seat) -> None:
        """I1 to I4 at the moment of a bind."""
        record = self._record_of(pod, seat)
        assert record is not None, f"I2, I4: {seat.uid} binds to {seat.node} without a durable permit for that"
        known = self.machine.knowledge.gangs.get(record.gang) if self.machine is not None else None
        for partner in record.group if known is None or not known.started else ():
            permitted = partner in self.etcd or partner in self.permitted_with[record.gang] or self._runs(partner)
            assert permitted or partner not in self.cluster.gangs, f"I1: {record.gang} binds, {partner} has no permit"
        if seat.node in self.cluster.nodes and seat.node not in self.shared_nodes:
            free = dict(self.cluster.nodes[seat.node].allocatable)["cpu"] - self.cluster.used[seat.node]
            assert free >= self.cluster.cpu(pod), f"I3: {seat.node} is oversubscribed"

    def _runs(self, gang_id: str) -> bool:
        """As many of its pods as must start together are bound, whoever did it."""
        facts = self.cluster.gangs.get(gang_id)
        return facts is not None and facts.minimum <= sum(
            pod.seated for pod in self.cluster.pods.values() if pod.gang == gang_id
        )

    def _record_of(self, pod: PodFacts, seat: Seat) -> Record | None:
        """What permits this bind: a record of the pod's gang, or of the one that it was in when it was decided."""
        own = self.etcd.get(pod.gang or f"plain/{pod.namespace}/{pod.name}")
        for record in (own, *self.etcd.values()):
            if record and any((held.uid, held.node) == (seat.uid, seat.node) for held in record.seats):
                return record
        return None

    def check_quiet(self) -> None:
        """Nothing is under way: no reservation without cause, no gang half started without a word."""
        if self.machine is None or self.under_way:
            return
        knowledge = self.machine.knowledge
        wanted = {uid for found in knowledge.gangs.values() for uid in (*found.seats, *found.acked)}
        assert set(knowledge.ledger.reserved) == wanted, "I5: reservations and seats differ"
        for found in knowledge.gangs.values():
            facts = found.facts
            if facts is None or not found.permitted or found.started:
                continue
            assert found.seats or found.lost, f"I6: {found.id} rests half started"
