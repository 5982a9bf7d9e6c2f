"""The test world: a cluster with users, other schedulers and services, checked by the oracle at every step."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from builders.core.device_claims import slices_of
from builders.core.objects import (
    EXTENDED,
    GPUS,
    Cluster,
    claiming_class,
    extended_class,
    plain_pod,
    pod_class,
    ruled_class,
)
from builders.core.scenario import Scenario
from builders.core.shared_claims import SHARED, is_counted, label_of, users_of, with_shares
from builders.devices.facts import claim as claim_for
from builders.devices.facts import way
from builders.devices.streamed import claim_object
from builders.gangs.facts import CoreGang
from builders.gangs.labels import labelled, selects
from muster.coordinator.core.effects import Bind, Deallocate, Effect, Evict, MarkTimedOut, Persist, PodCondition
from muster.coordinator.core.events import (
    BindOutcome,
    BindResult,
    Event,
    EvictOutcome,
    EvictResult,
    PodName,
    Rules,
    Seat,
    Tick,
)
from muster.coordinator.core.machine import Machine
from muster.devices.facts import Claim, DeviceId
from muster.gangs.facts import CompositeFacts, DeviceObject, DeviceObjectKind, NodeFacts, PodFacts
from simulation.binding_replicas import BindingReplicas
from simulation.oracle import Oracle

SLOTS = "abcdef"
"""Names of the gangs that may exist; a gang's slot is its index."""
GROUPINGS = ("ab", "cd", "ef", "abc", "def", "bc")
"""Gangs that may declare each other as their gang group."""
FLOOD_SLOTS = range(100, 130)
"""Slots of the gangs of the namespace "flood"."""
RANKED_GANG = "/f"
"""End of the id of the gang whose pods ask for ranks."""
FOREIGN_NODE = "theirs"
"""A node closed to us, on which other schedulers bind pods."""
MAX_EFFECTS = 3000
"""Limit of effects without any other event: a coordinator that exceeds it is in an endless loop."""
RULES = Rules(
    reservation_timeout_seconds=900.0, max_waiting_time_seconds=1000.0, max_held_share=0.9, groups_per_solve=3
)
"""The defaults, with limits that scenarios reach."""
_IN_ORDER = (Persist, MarkTimedOut)

Listener = Callable[[Scenario, Event | Effect], None]
"""Called with every event and effect of the coordinator."""


class ObservedScenario(Scenario):
    """A scenario whose every step is checked by an oracle."""

    def __init__(self, nodes: dict[str, int], oracle: Oracle, listen: Listener | None = None) -> None:
        self.oracle = oracle
        self.listen = listen
        self.steps = 0
        self.effects = 0
        self.thief = False
        """Another scheduler takes what evicted pods free."""
        self.binding = BindingReplicas()
        self.etcd_restored = False
        """The next leader's epoch is lower than those before."""
        self.unruled: set[str] = set()
        """Uids of pods whose place does not follow the rules between pods: others placed them, or they changed.
        They stay after a restore of the API server: permits given since the backup are in Muster's etcd.
        """
        self.most_label_sets = 0
        """Number of label sets that there were at once."""
        self.most_classes = 0
        """Number of classes that there were at once."""
        self.stuck: set[str] = set()
        """Uids of pods that do not end when they are deleted."""
        self.plugins: Counter[str] = Counter()
        """Number of devices by node that a device plugin offers as the extended resource."""
        self.extends = False
        """Pods may request the extended resource: nodes offer devices for it."""
        self.shares = False
        """Pods may share claims."""
        super().__init__(nodes, rules=RULES)

    def start(self) -> None:
        self.binding.new_leader(restored=self.etcd_restored)
        self.etcd_restored = False
        super().start()

    def do(self, index: int) -> None:
        if isinstance(self.under_way[index], Bind | Deallocate | Evict | MarkTimedOut):
            self.binding.leader_calls()
        super().do(index)

    def change(self, **changes: Any) -> None:
        """Delays the change behind earlier delayed ones."""
        for pod in changes.get("pods") or ():
            before = self.cluster.pods.get(pod.uid)
            if before is not None and (before.class_id, before.label_set) != (pod.class_id, pod.label_set):
                self.unruled.add(pod.uid)
        if self.shares:
            self._add_shares(changes)
        self._change(**changes)
        if self.shares:
            _, _, claims = with_shares(self.cluster, self.claims.all())
            if claims:
                self._change(device_objects=list(map(claim_object, claims)))

    def _change(self, **changes: Any) -> None:
        if self.cluster.device_objects or "device_objects" in changes:
            changes["nodes"] = self._with_offers(**changes)
        lagging, self.lagging = self.lagging, self.lagging or bool(self.stream)
        super().change(**changes)
        self.lagging = lagging

    def devices(self) -> list[DeviceId]:
        """Devices that may be allocated."""
        slices = slices_of(self.cluster.device_objects.values())
        return [DeviceId(each.driver, each.pool, one.name) for each in slices for one in each.devices]

    def _add_shares(self, changes: dict[str, Any]) -> None:
        """Adds the classes of pods that share claims, as they are after the changes."""
        pods, removed = list(changes.get("pods") or ()), changes.get("remove_pods") or ()
        there = {**self.cluster.pods, **{pod.uid: pod for pod in pods}}
        for uid in removed:
            there.pop(uid, None)
        objects = [*(changes.get("device_objects") or ()), *self.claims.of_ended(removed, pods)]
        claims = {each.id: each for each in self.claims.all()}
        for each in objects:
            if each.kind is DeviceObjectKind.CLAIM:
                claims.pop(each.name, None)
                if each.content:
                    claims[each.name] = msgspec.json.decode(each.content, type=Claim)
        more, classes, _ = with_shares(self.cluster, claims.values(), there)
        if more:
            changes["pods"] = list({pod.uid: pod for pod in [*pods, *more]}.values())
            changes["classes"] = [*(changes.get("classes") or ()), *classes]

    def _with_offers(
        self,
        nodes: Sequence[NodeFacts] = (),
        remove_nodes: Sequence[str] = (),
        device_objects: Sequence[DeviceObject] = (),
        pods: Sequence[PodFacts] = (),
        remove_pods: Sequence[str] = (),
        **_: object,
    ) -> list[NodeFacts]:
        """The changed nodes, and those that offer another number of devices: as cluster-state counts them, those that
        are allocated to claims of our pods included.
        """
        given = [*device_objects, *self.claims.of_ended(remove_pods, pods)]
        objects = {**self.cluster.device_objects, **{(each.kind, each.name): each for each in given}}
        claims = [each for each in objects.values() if each.kind is DeviceObjectKind.CLAIM and each.content]
        present = {**self.cluster.pods, **{pod.uid: pod for pod in pods}}
        there = [pod for uid, pod in present.items() if uid not in set(remove_pods)]
        theirs, by_claims, as_extended = set[DeviceId](), set[DeviceId](), set[DeviceId]()
        for claim in (msgspec.json.decode(each.content, type=Claim) for each in claims):
            ids = {result.id for result in claim.allocation.results} if claim.allocation is not None else set()
            if claim.extended:
                as_extended |= ids
            elif claim.owner or is_counted(claim, users_of(claim, there)):
                by_claims |= ids
            else:
                theirs |= ids
        devices = [
            DeviceId(each.driver, each.pool, one.name) for each in slices_of(objects.values()) for one in each.devices
        ]
        self.cluster.usable_devices = Counter(each.pool for each in devices if each not in theirs)
        offered = {
            GPUS: Counter(each.pool for each in devices if each not in theirs | as_extended),
            EXTENDED: Counter(each.pool for each in devices if self.extends and each not in theirs | by_claims),
        }
        changed_nodes = {facts.name: facts for facts in nodes}
        for name, facts in {**self.cluster.nodes, **changed_nodes}.items():
            amounts = {resource: amount for resource, amount in facts.allocatable if resource not in offered}
            amounts |= {resource: number[name] for resource, number in offered.items() if number[name]}
            if self.plugins[name]:
                amounts[EXTENDED] = self.plugins[name]
            backed = (EXTENDED,) if EXTENDED in amounts and not self.plugins[name] else ()
            if name not in remove_nodes and (amounts, backed) != (dict(facts.allocatable), facts.device_backed):
                allocatable = tuple(sorted(amounts.items()))
                changed_nodes[name] = replace(facts, allocatable=allocatable, device_backed=backed)
        return list(changed_nodes.values())

    def tell(self, *events: Event) -> None:
        if self.listen is not None:
            for event in events:
                self.listen(self, event)
        self.steps += 1
        self.most_label_sets = max(self.most_label_sets, len(self.cluster.label_sets))
        self.most_classes = max(self.most_classes, len(self.cluster.classes))
        effects = self.effects
        super().tell(*events)
        if self.machine is not None:
            idle = effects == self.effects and all(isinstance(event, Tick) for event in events)
            self.oracle.step_done(self, self.machine, idle=idle)

    def take(self, effect: Effect) -> None:
        self.effects += 1
        if self.listen is not None:
            self.listen(self, effect)
        self.oracle.take(self, effect)
        super().take(effect)

    def bind(self, seat: Seat) -> BindResult:
        result = super().bind(seat)
        if result.outcome is BindOutcome.BOUND and self.cluster.ruled:
            check_apart(self, seat)
        return result

    def bind_elsewhere(self, uid: str, node_name: str) -> None:
        self.unruled.add(uid)
        super().bind_elsewhere(uid, node_name)

    def evict(self, name: PodName) -> EvictResult:
        pod = self.cluster.pods.get(name.uid)
        graceful, self.graceful = self.graceful, self.graceful or name.uid in self.stuck
        result = super().evict(name)
        self.graceful = graceful
        if pod is not None and result.outcome is not EvictOutcome.GONE:
            self.oracle.evicted(self, pod, refused=result.outcome is EvictOutcome.FAILED)
            if self.thief and pod.uid not in self.cluster.pods and pod.node in self.cluster.nodes:
                self.intrude(plain_pod(f"thief{self.steps}-{pod.name}", self.cluster.cpu(pod) // 1000), pod.node)
        return result

    def run_effects(self, most: int = MAX_EFFECTS) -> None:
        super().run_effects(most)


def check_apart(scenario: ObservedScenario, seat: Seat) -> None:
    """Rules between pods: no pod is bound beside one that it, or that one, must not be with."""
    cluster, bound = scenario.cluster, scenario.cluster.pods[seat.uid]
    if seat.uid in scenario.unruled:
        return
    own = [term.selector for term in cluster.class_of(bound.class_id).required_pod_anti_affinity]
    for pod in cluster.pods.values():
        if pod.uid == seat.uid or pod.node != seat.node or not pod.seated or pod.uid in scenario.unruled:
            continue
        theirs = [term.selector for term in cluster.class_of(pod.class_id).required_pod_anti_affinity]
        apart = any(selects(name, pod.label_set) for name in own)
        apart = apart or any(selects(name, bound.label_set) for name in theirs)
        assert not apart, f"rules: {seat.uid} is bound to {seat.node} beside {pod.uid}, which must be apart"


class Dress(NamedTuple):
    """Labels of a gang's pods, and their rule about the labels of others on their node."""

    labels: str = ""
    """Names of labels, joined by "+"; with "i" each pod has a label of its own, as pods of an indexed Job do."""
    apart_from: str = ""
    beside: str = ""


class Sharing(IntEnum):
    """How the pods of a gang share a claim."""

    NAMED = 1
    """A claim of the gang's own."""
    POD_GROUP = 2
    """A claim that is reserved for the PodGroup of the pods."""
    ALL = 3
    """A claim that all such gangs of a namespace name."""


class DeposedLeader(NamedTuple):
    """A leader that was replaced while it ran, and its epoch."""

    machine: Machine
    epoch: int


class Backup(NamedTuple):
    """The API server's objects at some time."""

    cluster: Cluster
    gangs: dict[int, CoreGang]
    reported: dict[str, PodCondition]
    """Conditions of pods, by uid."""
    shared_nodes: set[str]
    plugins: Counter[str]
    """What device plugins of nodes offered."""


class World:
    """One scenario, and what its users remember."""

    def __init__(self, listen: Listener | None = None) -> None:
        self.oracle = Oracle()
        self.scenario = ObservedScenario({"n0": 4, "n1": 3}, self.oracle, listen)
        self.gangs: dict[int, CoreGang] = {}
        """Present and past declarations by slot."""
        self.deposed: DeposedLeader | None = None
        """A former leader that does not know yet that another one leads."""
        self.composed: dict[int, tuple[tuple[str, ...], tuple[CompositeFacts, ...]]] = {}
        """Gang groups and composites of gangs by slot."""
        self.dresses: dict[int, Dress] = {}
        """Labels and rules of gangs by slot."""
        self.claimed: dict[int, int] = {}
        """Number of devices that each pod of a slot's gang claims."""
        self.extended: set[int] = set()
        """Slots of gangs whose pods request devices as an extended resource, without claims of their own."""
        self.shared: dict[int, Sharing] = {}
        """How the pods of a slot's gang share one claim instead."""
        self.storing: dict[int, int] = {}
        """Slots of gangs whose pods claim a volume each, and how often the volumes of the first pods are refused."""
        self.nodes_seen = set(self.scenario.cluster.nodes)
        """Nodes that were added at any time."""
        self.backup: Backup | None = None
        """The last backup of the API server's etcd."""
        self._count = 0

    # -- users

    def number(self) -> int:
        """Returns a number that was never returned before."""
        self._count += 1
        return self._count

    def declare(self, slot: int, built: CoreGang) -> None:
        """A user declares a gang, or edits the declaration."""
        self.gangs[slot] = built
        self.scenario.change(gangs=[built.gang_facts()])

    def in_composites(self, slot: int, built: CoreGang) -> CoreGang:
        """Returns the gang in the composites that its slot is in."""
        names, composites = self.composed.get(slot, ((), ()))
        return changed(built, group_names=names, composites=composites) if composites else built

    def create_pods(self, slot: int, most: int) -> None:
        """A controller creates missing pods."""
        built = self.gangs[slot]
        there = {(pod.gang, pod.name) for pod in self.scenario.cluster.pods.values()}
        missing = [pod for pod in built.pods() if (pod.gang, pod.name) not in there]
        if missing and most:
            pods = [self.dressed(slot, self.anew(pod)) for pod in missing[:most]]
            if pods and slot in self.storing and not self.claimed.get(slot):
                pods = [replace(pod, claims=("data",)) for pod in pods]
                self.scenario.volume_failures[pods[0].uid] = self.storing[slot]
            if count := self.claimed.get(slot):
                self._create_claiming(slot, pods, count)
            else:
                self.scenario.change(pods=pods)

    def _create_claiming(self, slot: int, pods: list[PodFacts], count: int) -> None:
        """Creates pods with claims; those with a rule about the pods beside them have none."""
        plain = {pod_class(cpu).id for cpu in range(17)}
        if sharing := self.shared.get(slot):
            self._create_sharing(slot, pods, count, sharing)
            return
        if slot in self.extended:
            self.scenario.change(pods=[self._extended(pod, count) if pod.class_id in plain else pod for pod in pods])
            return
        claiming = dict(self.claiming(pod, count) for pod in pods if pod.class_id in plain)
        self.scenario.change(
            pods=[*(pod for pod in pods if pod.class_id not in plain), *claiming],
            device_objects=list(claiming.values()),
        )

    def _extended(self, pod: PodFacts, count: int) -> PodFacts:
        """The pod with a request for so many devices as an extended resource."""
        self.scenario.extends = True
        known = extended_class(self.scenario.cluster.cpu(pod) // 1000, count)
        if known.id not in self.scenario.cluster.classes:
            self.scenario.change(classes=[known])
        return replace(pod, class_id=known.id)

    def uses_devices(self, pod: PodFacts) -> bool:
        """The pod has claims, or requests the extended resource."""
        return bool(pod.device_claims) or bool(self.scenario.cluster.class_of(pod.class_id).extended)

    def _create_sharing(self, slot: int, pods: list[PodFacts], count: int, sharing: "Sharing") -> None:
        """Creates pods that share a claim for so many devices, and the claim if there is none."""
        scenario = self.scenario
        scenario.shares = True
        plain = {pod_class(cpu).id for cpu in range(17)}
        name = f"{SHARED}-all" if sharing is Sharing.ALL else f"{SHARED}-{SLOTS[slot]}"
        group = {"group_claims": (name,), "group_name": name, "group_uid": f"uid-{name}"}
        more = group if sharing is Sharing.POD_GROUP else {}
        users = [
            replace(pod, device_claims=(name,), label_set=label_of(name, pod.label_set), **more)
            for pod in pods
            if pod.class_id in plain
        ]
        missing = {pod.namespace for pod in users if scenario.claims.get(pod.namespace, name) is None}
        created = [scenario.claims.written(self.shared_claim(space, name, count)) for space in sorted(missing)]
        by_uid = {pod.uid: pod for pod in [*pods, *users]}
        scenario.change(pods=list(by_uid.values()), device_objects=created)

    def shared_claim(self, namespace: str, name: str, count: int) -> Claim:
        return replace(claim_for(way(count), name=name), namespace=namespace, uid=f"{name}-{self.number()}")

    def claiming(self, pod: PodFacts, count: int) -> tuple[PodFacts, DeviceObject]:
        """Returns the pod with a new claim for so many devices, and the claim."""
        cluster, number = self.scenario.cluster, self.number()
        known = claiming_class(cluster.cpu(pod) // 1000, count)
        if known.id not in cluster.classes:
            self.scenario.change(classes=[known])
        name = f"{pod.name}-{number}"
        claim = replace(claim_for(way(count), name=name), namespace=pod.namespace, uid=f"claim-{number}", owner=pod.uid)
        return replace(pod, class_id=known.id, device_claims=(name,)), self.scenario.claims.written(claim)

    def dressed(self, slot: int, pod: PodFacts) -> PodFacts:
        """Returns the pod with the labels and the rule of the slot's pods."""
        dress = self.dresses.get(slot, Dress())
        names = [pod.name.replace("-", "") if name == "i" else name for name in dress.labels.split("+")]
        pod = replace(pod, label_set=labelled(*filter(None, (*names, pod.label_set))))
        if not (dress.apart_from or dress.beside):
            return pod
        cpu = self.scenario.cluster.cpu(pod) // 1000
        ruled = ruled_class(cpu, apart_from=dress.apart_from, beside=dress.beside)
        if ruled.id not in self.scenario.cluster.classes:
            self.scenario.change(classes=[ruled])
        return replace(pod, class_id=ruled.id)

    def change_pods(self, *pods: PodFacts) -> None:
        """Somebody edits pods."""
        self.scenario.change(pods=list(pods))

    def remove_pods(self, *pods: PodFacts) -> None:
        """Somebody deletes pods, which are removed at once."""
        if pods:
            self.scenario.change(remove_pods=[pod.uid for pod in pods])

    def anew(self, pod: PodFacts) -> PodFacts:
        """Returns the pod with a uid that was never used before."""
        return replace(pod, uid=f"{pod.uid}#{self.number()}", wanted_rank=_wanted_rank(pod))

    def back_up(self) -> None:
        """Somebody takes a backup of the API server's etcd."""
        scenario = self.scenario
        reported = dict(self.oracle.reported)
        shared = set(scenario.shared_nodes)
        self.backup = Backup(scenario.cluster.copy(), dict(self.gangs), reported, shared, scenario.plugins.copy())
        self.number()

    def restore(self) -> None:
        """Restores the backup: its objects replace those for which everything under way was decided."""
        backup, scenario = self.backup, self.scenario
        assert backup is not None
        self.gangs = dict(backup.gangs)
        scenario.take_back(backup.cluster)
        scenario.plugins = backup.plugins.copy()
        scenario.claims.restored = True
        scenario.shared_nodes |= backup.shared_nodes
        self.oracle.restored(backup.reported)

    # -- queries

    def fingerprint(self) -> tuple[object, ...]:
        """Returns a value that differs before and after an action that had an effect."""
        scenario = self.scenario
        failures = tuple(
            each.total() for each in (scenario.bind_failures, scenario.evict_failures, scenario.volume_failures)
        )
        calls = scenario.binding.former_calls
        waits = (len(scenario.under_way), len(scenario.stream), len(calls), scenario.binding.used)
        clocks = (scenario.now, scenario.unix_ahead)
        return (
            *failures,
            *waits,
            *clocks,
            scenario.lagging,
            scenario.claims.lost,
            scenario.claims.failures,
            scenario.graceful,
            scenario.thief,
            len(scenario.stuck),
            len(scenario.unruled),
            len(scenario.cluster.label_sets),
            len(scenario.cluster.selectors),
            scenario.steps,
            self._count,
            len(self.gangs),
        )

    def pod(self, which: int, *, bound: bool | None = None) -> PodFacts | None:
        """Selects one of the pods; only bound or unbound ones if `bound` is given."""
        there = self.scenario.cluster.pods.values()
        pods = sorted((pod for pod in there if bound in (None, bool(pod.node))), key=lambda pod: pod.uid)
        return pods[which % len(pods)] if pods else None

    def pods_of(self, slot: int) -> list[PodFacts]:
        """Returns the pods of a slot's gang."""
        built = self.gangs.get(slot)
        return [pod for pod in self.scenario.cluster.pods.values() if built is not None and pod.gang == built.id]

    def node(self, which: int) -> str | None:
        """Selects one of the nodes that are open to us."""
        names = sorted(self.scenario.cluster.nodes.keys() - {FOREIGN_NODE})
        return names[which % len(names)] if names else None

    def share(self, *nodes: str) -> None:
        """Exempts these nodes from I3 until it holds on them again: other schedulers overcommit them."""
        self.scenario.shared_nodes.update(nodes or self.scenario.cluster.nodes)

    # -- services

    def choices(self) -> list[int]:
        """Returns indexes of effects that may be carried out next: writes to etcd and marks remain in order."""
        under_way = self.scenario.under_way
        first = [next((i for i, each in enumerate(under_way) if isinstance(each, kind)), -1) for kind in _IN_ORDER]
        return [i for i, each in enumerate(under_way) if i in first or not isinstance(each, _IN_ORDER)]

    def do(self, index: int) -> None:
        """Carries out an effect in flight."""
        self.scenario.do(index)

    def run(self) -> None:
        """Delivers all changes and carries out all effects."""
        self.scenario.deliver()
        while self.scenario.under_way or self.scenario.stream:
            self.scenario.run_effects()
            self.scenario.deliver()

    def pass_time(self, seconds: float) -> None:
        """Time passes; the coordinator is woken when it asked for it, but no effect is carried out."""
        scenario = self.scenario
        end, at, wakes = scenario.now + seconds, -1.0, 0
        while (wake := scenario.leader.next_wake()) is not None and wake <= end:
            wakes = wakes + 1 if wake <= at else 0
            assert wakes < 10, f"the coordinator repeatedly requests to be woken at {wake}"
            at = wake
            scenario.now = max(scenario.now, wake)
            scenario.tell(Tick())
        scenario.now = end
        scenario.tell(Tick())

    def calm(self, seconds: float) -> None:
        """Time passes while all effects are carried out."""
        self.run()
        lagging, self.scenario.lagging = self.scenario.lagging, False
        self.scenario.pass_time(seconds)
        self.scenario.lagging = lagging


def _wanted_rank(pod: PodFacts) -> int:
    """The rank that a pod asks for: pods of one gang do, some of them for the same one; -1: none."""
    number = pod.name.rpartition("-")[2]
    return int(number) * 3 % 5 if pod.gang.endswith(RANKED_GANG) and number.isdecimal() else -1
