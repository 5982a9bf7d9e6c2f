"""The design's invariants, checked in every scenario of the coordinator's core."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Protocol

from builders.core.objects import Cluster
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Evict
from muster.coordinator.core.events import Record, RecordState, Seat
from muster.coordinator.core.gang.gang import Gang
from muster.gangs.facts import GangFacts, PodFacts, PodPhase


class World(Protocol):
    """State that outlives a coordinator."""

    cluster: Cluster
    etcd: dict[str, Record]
    permitted_with: defaultdict[str, set[str]]
    shared_nodes: set[str]
    undone_binds: frozenset[str]
    """Pods that were not bound in the backup of the API server that was restored last."""
    moved_from: dict[str, str]
    """The gang of which a pod was before somebody moved it to another one."""


def check_bind(world: World, known: Mapping[str, Gang], pod: PodFacts, seat: Seat) -> None:
    """Checks I1 to I4 at a bind; `known` are the gangs in the coordinator's cache.

    Not checked for a call from before a restore of the API server that is carried out after it: its permit may have
    been fulfilled, and forgotten, meanwhile. Nor for a pod that was moved from a gang that is deleted: its record is
    deleted, maybe while the call is under way.
    """
    record = permit_of(world.etcd, pod, seat)
    if record is None and (pod.uid in world.undone_binds or _left_deleted_gang(world, pod)):
        return
    assert record is not None, f"I2, I4: {seat.uid} binds to {seat.node} without a durable permit for that"
    gang = known.get(record.gang)
    for partner in record.group if gang is None or not gang.started else ():
        durable = world.etcd.get(partner)
        permitted = (
            (durable is not None and durable.state is not RecordState.UNPERMITTED)
            or partner in world.permitted_with[record.gang]
            or _runs(world.cluster, partner)
        )
        assert permitted or partner not in world.cluster.gangs, f"I1: {record.gang} binds, {partner} has no permit"
    if seat.node in world.cluster.nodes and seat.node not in world.shared_nodes:
        assert world.cluster.free()[seat.node] >= world.cluster.cpu(pod), f"I3: {seat.node} is oversubscribed"


def check_composites(known: Mapping[str, Gang], before: Collection[str], written: Collection[str]) -> None:
    """I1: gangs whose permit was written now start with enough others: each composite above them has as many complete
    children as it needs, up to one that had them before. A gang without seats was started by others.
    """
    now = {id_ for id_, gang in known.items() if gang.permitted}
    declared = [gang.facts for gang in known.values() if gang.facts is not None]
    for gang in (known[id_] for id_ in sorted(now.intersection(written).difference(before)) if known[id_].seats):
        for composite in reversed(gang.facts.composites if gang.facts is not None else ()):
            if complete_children(declared, composite.name, before) >= composite.minimum:
                break
            children = complete_children(declared, composite.name, now)
            assert children >= composite.minimum, (
                f"I1: {gang.id} starts with {children} of {composite.minimum} children of {composite.name}"
            )


def complete_children(declared: Collection[GangFacts], name: str, started: Collection[str]) -> int:
    """Number of complete children of a composite if these gangs are started."""
    gangs, composites = 0, dict[str, int]()
    for gang in declared:
        chain = gang.composites
        names = [each.name for each in chain]
        if name not in names:
            continue
        if names[-1] == name:
            gangs += gang.id in started
        else:
            child = chain[names.index(name) + 1]
            composites[child.name] = child.minimum
    return gangs + sum(complete_children(declared, child, started) >= minimum for child, minimum in composites.items())


def _left_deleted_gang(world: World, pod: PodFacts) -> bool:
    former = world.moved_from.get(pod.uid, pod.gang)
    return former != pod.gang and former not in world.cluster.gangs


def permit_of(etcd: Mapping[str, Record], pod: PodFacts, seat: Seat) -> Record | None:
    """Returns the record that permits this bind: of the pod's gang, or of its gang when it was decided."""
    own = etcd.get(pod.gang or f"plain/{pod.namespace}/{pod.name}")
    for record in (own, *etcd.values()):
        if record is None or record.state is RecordState.UNPERMITTED:
            continue
        if any((held.uid, held.node) == (seat.uid, seat.node) for held in record.seats):
            return record
    return None


def _runs(cluster: Cluster, gang_id: str) -> bool:
    """Whether the minimum is bound, by whichever scheduler."""
    facts = cluster.gangs.get(gang_id)
    pods = [pod for pod in cluster.pods.values() if pod.gang == gang_id]
    running = sum(pod.seated for pod in pods)
    if facts is None or running >= facts.minimum:
        return facts is not None
    succeeded = sum(pod.phase is PodPhase.SUCCEEDED for pod in pods) if facts.counts_succeeded else 0
    return running > 0 and running + succeeded >= facts.minimum


def check_evict(etcd: Mapping[str, Record], effect: Evict) -> None:
    """I9: a durable record contains the pods of an eviction."""
    record = etcd.get(effect.gang)
    planned = {pod.uid for pod in record.evicting} if record is not None else set()
    strays = [pod.uid for pod in effect.pods if pod.uid not in planned]
    assert not strays, f"I9: {strays} of {effect.gang} are evicted without a durable record of that"


def check_quiet(cache: Cache) -> None:
    """Checks the state at rest: no reservation leaks, no gang is partly started in silence."""
    check_reservations(cache)
    for gang in cache.gangs.values():
        if gang.facts is not None and gang.permitted and not gang.started:
            assert gang.seats or gang.lost, f"I6: {gang.id} rests half started"


def check_reservations(cache: Cache) -> None:
    """I5: reservations and seats are the same, also of waiting gangs."""
    seats = {uid for gang in cache.gangs.values() for uid in (*gang.seats, *gang.acknowledged)}
    assert set(cache.ledger.reserved) == seats, "I5: reservations and seats differ"
