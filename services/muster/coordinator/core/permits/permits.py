"""Permits: the records of gangs in etcd, with the ranks of their members; decisions that wait for a write (I2); and
recovery from the records at the beginning of a term (I5, I6).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Persist
from muster.coordinator.core.events import Now, PodName, Record, RecordState, Seat, ShrunkSubgroup
from muster.coordinator.core.gang.composite_trees import composites_of
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.gang.state import ActionState, PartGrowth
from muster.coordinator.core.gang.subgroups import is_bound_by_others, subgroup_name_of
from muster.coordinator.core.permits.binding import lacks_extended
from muster.coordinator.core.permits.starts import joins_claims_first, starts_with_claims
from muster.coordinator.core.preemption.nomination import Plan, PlanPart
from muster.coordinator.core.slices import GANGS, OBJECTS, Slices
from muster.gangs.solve import PodsOnNode
from muster.topology.ranks import Path, natural_order, ranks


@dataclass(slots=True, frozen=True)
class Permit:
    """The decision that these gangs of the group may bind."""

    group: Group
    gangs: Sequence[Gang]
    records: Sequence[Record]
    """The records that permit the gangs, in the order of `gangs`."""
    replaced: Sequence[Record | None]
    """The records that these replace, in the same order; None: the gang had none."""


@dataclass(slots=True, frozen=True)
class TimeOut:
    """The pods of these gangs, which waited too long, are marked as timed out."""

    gangs: Sequence[Gang]


Decision = Permit | TimeOut | Plan | PlanPart
"""Decisions that take effect when they are durable in etcd (I2)."""


class Permits:
    """Writes under way and the decisions that wait for them: an entry ends when its write has ended."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._last_id = 0
        self._awaited: dict[int, Decision] = {}

    def persist(self, puts: tuple[Record, ...] = (), deletes: tuple[str, ...] = ()) -> Persist:
        """A write on which nothing depends."""
        self._last_id += 1
        return Persist(self._last_id, puts, deletes, awaited=False)

    def decide(self, decision: Decision, records: tuple[Record, ...]) -> Persist:
        """A write on which a decision depends."""
        self._last_id += 1
        self._awaited[self._last_id] = decision
        return Persist(self._last_id, records)

    def permit(self, group: Group, gangs: Sequence[Gang], now: Now) -> Persist:
        """Permit the gangs of the group that have new seats; they start when that is durable."""
        replaced = [gang.permit.record for gang in gangs]
        together = tuple(sorted(gang.id for gang in gangs))
        claims_first = joins_claims_first(gangs, self._cache.gangs)
        records = tuple(
            self.record(gang, RecordState.BINDING, now.unix_seconds, together, claims_first=claims_first)
            for gang in gangs
        )
        persist = self.decide(Permit(group, gangs, records, replaced), records)
        group.persist_id = persist.persist_id
        return persist

    @staticmethod
    def written(group: Group) -> None:
        """The group's permit is durable, or never will be."""
        group.persist_id = None

    @staticmethod
    def grant(gangs: Iterable[Gang]) -> None:
        """The permit of these gangs is durable (I2)."""
        for gang in gangs:
            gang.permit.grant()

    @staticmethod
    def withdraw(decision: Permit) -> None:
        """The permit can never be made durable: the gangs have the records again that it was to replace. A later record
        that was written meanwhile holds, with its ranks.
        """
        for gang, record, replaced in zip(decision.gangs, decision.records, decision.replaced, strict=True):
            if gang.permit.record is record:
                gang.permit.write(replaced)

    @staticmethod
    def forget_record(gang: Gang) -> None:
        """The gang's record is to be deleted."""
        gang.permit.write(None)

    @staticmethod
    def adopt(gang: Gang) -> None:
        """The gang runs, whoever bound its pods."""
        gang.permit.adopt()

    @staticmethod
    def resume_repair(gang: Gang) -> None:
        """The gang, which was to be evicted whole by its repair policy, cannot be: its pending members are repaired."""
        gang.permit.grant()
        for uid in gang.pending:
            gang.lose_recorded_seat(uid)

    @staticmethod
    def fulfil(gang: Gang) -> None:
        """All pods of the gang's first permit are bound."""
        gang.permit.fulfil()

    def settled(self, persist_id: int) -> Decision | None:
        """The decision that waited for a write that is durable, or never will be."""
        return self._awaited.pop(persist_id, None)

    def remember(self, gang: Gang, now: Now) -> Persist | None:
        """Write what a gang's record holds besides the permit, if it has changed."""
        before = gang.permit.record
        contents = _contents(gang)
        permitted = gang.permit.granted and not gang.eviction.whole
        revoked = before is not None and before.state is not RecordState.UNPERMITTED and not permitted
        if not revoked and contents == (_recorded(before) if before is not None else _EMPTY):
            return None
        if contents == _EMPTY and not permitted:
            gang.permit.write(None)
            return self.persist(deletes=(gang.id,))
        if not permitted:
            state = RecordState.UNPERMITTED
        else:
            state = before.state if before is not None else RecordState.SATISFIED
            if state is RecordState.UNPERMITTED:  # its eviction was cancelled
                state = RecordState.SATISFIED if gang.permit.fulfilled else RecordState.BINDING
        return self.persist((self.record(gang, state, now.unix_seconds),))

    def record(
        self,
        gang: Gang,
        state: RecordState,
        unix_seconds: float,
        permitted: tuple[str, ...] = (),
        *,
        claims_first: bool = False,
    ) -> Record:
        """The gang's new record. It holds all seats not known to be bound, also of earlier permits, since it replaces
        the record before. `permitted`: ids of the gangs that are permitted together with some of them; `claims_first`:
        some of these, or of those with which they start, have claims.
        """
        facts, whole = gang.facts, gang.growth.parts.get(gang.id, PartGrowth())
        waiting_since, timed_out_declaration, timing_out, evicting, evicted_for, nominated, preempted_by = _contents(
            gang
        )
        record = Record(
            gang=gang.id,
            incarnation=facts.incarnation if facts is not None else "",
            state=state,
            seats=tuple(gang.unfulfilled_seats) if state is RecordState.BINDING else (),
            schedule_cycle=gang.attempts.cycle.number,
            group=_permitted_with(gang, permitted),
            permitted_unix_millis=_permitted_unix_millis(gang, state, unix_seconds),
            waiting_since_unix_millis=waiting_since if state is RecordState.UNPERMITTED else 0,
            timed_out_declaration=timed_out_declaration,
            timing_out=timing_out,
            evicting=evicting,
            evicted_for=evicted_for,
            nominated=nominated,
            ranks=self._ranks(gang, state),
            tries=gang.attempts.total if permitted or not gang.permit.granted else gang.permit.attempts,
            preempted_by=preempted_by,
            shrinks=whole.shrinks,
            grows_after_unix_millis=whole.not_before_unix_millis,
            met_minimum=gang.met_minimum,
            revoked=gang.eviction.revoked,
            shrunk_subgroups=tuple(
                ShrunkSubgroup(subgroup_name_of(id_), part.shrinks, part.not_before_unix_millis)
                for id_, part in sorted(gang.growth.parts.items())
                if part.shrinks and id_ != gang.id
            ),
            claims_first=state is RecordState.BINDING and (claims_first or _waits_for_claims(gang)),
        )
        gang.permit.write(record)
        return record

    def _ranks(self, gang: Gang, state: RecordState) -> tuple[tuple[str, int], ...]:
        if state is RecordState.UNPERMITTED:
            return ranked_on_nodes(gang)
        return numbered(gang, self._cache) if state is RecordState.BINDING else still_ranked(gang)


_Contents = tuple[int, str, tuple[PodName, ...], tuple[PodName, ...], str, tuple[PodsOnNode, ...], str]
"""Contents of a record besides the permit."""
_EMPTY: _Contents = (0, "", (), (), "", (), "")


def _contents(gang: Gang) -> _Contents:
    """Contents of the gang's record besides the permit, as they should be."""
    before = gang.permit.record
    return (
        gang.hold.since_unix_millis if gang.hold.since is not None and not gang.permit.granted else 0,
        gang.hold.timed_out_declaration,
        _recorded_names(before.timing_out if before else (), gang, gang.hold.marking),
        _recorded_names(before.evicting if before else (), gang, gang.eviction.pods),
        gang.eviction.preemptor if gang.eviction.pods else "",
        gang.nominated,
        gang.eviction.preempted_by,
    )


def _recorded(record: Record) -> _Contents:
    return (
        record.waiting_since_unix_millis,
        record.timed_out_declaration,
        record.timing_out,
        record.evicting,
        record.evicted_for,
        record.nominated,
        record.preempted_by,
    )


def _recorded_names(names: tuple[PodName, ...], gang: Gang, uids: Collection[str]) -> tuple[PodName, ...]:
    """The recorded names while they cover these pods, so that the record is not written again for every pod that
    leaves.
    """
    if not uids:
        return ()
    recorded = {name.uid for name in names}
    return names if recorded.issuperset(uids) else tuple(gang.pod_name(uid) for uid in sorted(uids))


def _permitted_unix_millis(gang: Gang, state: RecordState, unix_seconds: float) -> int:
    if state is RecordState.UNPERMITTED:
        return 0
    before = gang.permit.record.permitted_unix_millis if gang.permit.record is not None else 0
    return before or int(unix_seconds * 1000)


def _waits_for_claims(gang: Gang) -> bool:
    """The gang's permit, which is granted, says so."""
    return gang.permit.granted and gang.permit.record is not None and gang.permit.record.claims_first


def _permitted_with(gang: Gang, permitted: tuple[str, ...]) -> tuple[str, ...]:
    """The group in which the gang started, even if it declares another one by now; of composites, the gangs that were
    permitted together.
    """
    if gang.permit.granted:
        return gang.permit.record.group if gang.permit.record is not None else ()
    if composites_of(gang):
        return permitted if len(permitted) > 1 else ()
    return gang.facts.group if gang.facts is not None else ()


Ranks = tuple[tuple[str, int], ...]
"""Uids and ranks of members, by rank."""


def numbered(gang: Gang, cache: Cache) -> Ranks:
    """Ranks for all members that have a seat or are bound. Members keep their rank; new members get the rank that they
    ask for if it is free, the others the lowest free ones: by topology at the start, later by name. A gang of one that
    asks for none has none.
    """
    present = still_ranked(gang)
    places = _places(gang)
    new = places.keys() - dict(present).keys()
    asking = sorted((uid for uid in new if gang.pods[uid].wanted_rank >= 0), key=_name_order(gang))
    if not present and not asking:
        return _from_the_start(gang, places, cache) if len(places) > 1 else ()
    taken = {rank: uid for uid, rank in present}
    for uid in asking:
        taken.setdefault(gang.pods[uid].wanted_rank, uid)
    others = new.difference(taken.values())
    in_order = (
        sorted(others, key=_name_order(gang))
        if present
        else [uid for uid, _ in _from_the_start(gang, {uid: places[uid] for uid in others}, cache)]
    )
    free = _free(set(taken))
    return _in_order([*((uid, rank) for rank, uid in taken.items()), *zip(in_order, free, strict=False)])


def _name_order(gang: Gang) -> Callable[[str], list[str | int]]:
    return lambda uid: natural_order(gang.pods[uid].name)


def still_ranked(gang: Gang) -> Ranks:
    """The recorded ranks of existing members; a rank is free when its pod has left its node."""
    recorded = gang.permit.record.ranks if gang.permit.record is not None else ()
    return tuple((uid, rank) for uid, rank in recorded if _is_there(gang, uid))


def _is_there(gang: Gang, uid: str) -> bool:
    return any(uid in where for where in (gang.bound, gang.seats, gang.acknowledged, gang.pending, gang.eviction.pods))


def ranked_on_nodes(gang: Gang) -> Ranks:
    """The recorded ranks of members on a node: their eviction may be cancelled."""
    return tuple((uid, rank) for uid, rank in still_ranked(gang) if uid in gang.bound or uid in gang.eviction.pods)


def _places(gang: Gang) -> dict[str, str]:
    """Node of each member that is bound or has a seat, by uid; "" for lost seats."""
    places = {uid: gang.pods[uid].node for uid in gang.bound}
    places.update(dict.fromkeys(gang.lost, ""))
    places.update((seat.uid, seat.node) for seat in (*gang.unbound_seats, *gang.acknowledged.values()))
    return places


def _from_the_start(gang: Gang, places: dict[str, str], cache: Cache) -> Ranks:
    members = [(gang.pods[uid].name, node) for uid, node in places.items()]
    found = ranks(members, _paths(gang, set(places.values()), cache))
    return _in_order(zip(places, found, strict=True))


def _paths(gang: Gang, names: Iterable[str], cache: Cache) -> dict[str, Path]:
    trees, nodes = cache.trees, cache.ledger.nodes
    tree = trees.get(gang.facts.tree if gang.facts is not None else "")
    if tree is None:
        return {}
    found = ((name, trees.above(tree, nodes[name])) for name in names if name in nodes)
    return {name: path for name, path in found if path is not None}


def _free(taken: set[int]) -> Iterator[int]:
    return (rank for rank in count() if rank not in taken)


def _in_order(pairs: Iterable[tuple[str, int]]) -> Ranks:
    return tuple(sorted(pairs, key=lambda pair: pair[1]))


def recover(cache: Cache, records: Sequence[Record]) -> Slices[tuple[tuple[str, ...], list[tuple[Gang, Record]]]]:
    """Apply records to the gangs of the snapshot; returns the gangs whose records are void, and the others with their
    records.

    Permits are restored in the order in which they were granted. A gang without a record counts as started if as many
    members as must start together are bound, as during a term. In slices of GANGS records, and of OBJECTS gangs.
    """
    void, resumed = [], []
    in_order = sorted(records, key=lambda record: (record.permitted_unix_millis, record.gang))
    yield
    for number, record in enumerate(in_order, start=1):
        gang = cache.gangs.get(record.gang)
        if gang is None or not _same(gang, record):
            void.append(record.gang)
        else:
            yield from _resume(cache, gang, record)
            resumed.append((gang, record))
        if number % GANGS == 0:
            yield
    for number, gang in enumerate(cache.gangs.values(), start=1):
        if gang.permit.record is None and (is_bound_by_others(gang, cache.ledger.selection) or _ran(gang)):
            gang.permit.adopt()
        if gang.run_ended:
            cache.restart(gang)
        if gang.permit.granted:
            cache.regroup(gang)
            cache.touch(gang, edited=True)
        elif gang.all_present:  # the earliest time that is known now
            gang.timing.ready(float(max(pod.created_seconds for pod in gang.pods.values())))
        if number % OBJECTS == 0:
            yield
    return tuple(void), resumed


def _same(gang: Gang, record: Record) -> bool:
    """The record is of this incarnation, or one of its pods is still a member."""
    facts = gang.facts
    if facts is not None and facts.incarnation == record.incarnation:
        return True
    if any(pod.uid in gang.pods for pod in (*record.timing_out, *record.evicting)):
        return True
    return any(seat.uid in gang.pending or seat.uid in gang.bound for seat in record.seats)


def _ran(gang: Gang) -> bool:
    """A single pod that was bound, and has ended or is terminating."""
    return gang.plain and any(pod.node for pod in gang.pods.values())


def _resume(cache: Cache, gang: Gang, record: Record) -> Slices[None]:
    gang.restore(record)
    if not gang.permit.granted:
        return
    # The pod's class counts, not the record's: another version of Muster may name classes differently.
    seats = [
        replace(seat, class_id=pod.class_id, label_set=pod.label_set)
        for seat in record.seats
        if (pod := gang.pending.get(seat.uid)) is not None
    ]
    if not seats:
        return
    if cache.ledger.refusal(_demand(seats)) is None and all(_has_chosen(cache, gang, seat) for seat in seats):
        _reserve(cache, gang, seats)
        return
    if starts_with_claims(gang, seats):
        for seat in seats:  # it starts again whole
            gang.lose_recorded_seat(seat.uid)
        return
    for number, seat in enumerate(seats, start=1):
        if cache.ledger.refusal(_demand([seat])) is None and _has_chosen(cache, gang, seat):
            _reserve(cache, gang, [seat])
        else:
            gang.lose_recorded_seat(seat.uid)
        if number % GANGS == 0:  # each is checked as a gang is
            yield


def _has_chosen(cache: Cache, gang: Gang, seat: Seat) -> bool:
    """The seat has a volume or devices for each claim that needs some, and no other seat has them."""
    volumes, devices, pod = cache.ledger.volumes, cache.ledger.devices, gang.pods[seat.uid]
    if not volumes.is_kept(seat) or volumes.lacks_choice(seat, pod.claims):
        return False
    if lacks_extended(cache.ledger, seat):
        return False
    return devices.is_kept(seat) and not devices.lacks_choice(seat, pod.device_claims)


def _reserve(cache: Cache, gang: Gang, seats: Sequence[Seat]) -> None:
    cache.ledger.reserve(seats)
    for seat in seats:
        gang.take_seat(seat, ActionState.SENT)


def _demand(seats: Sequence[Seat]) -> Counter[tuple[str, str]]:
    return Counter((seat.node, seat.class_id) for seat in seats)
