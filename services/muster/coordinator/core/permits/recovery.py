"""Recovery at the beginning of a term: gangs continue where their records and the first snapshot say (I5, I6)."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.events import Record, RecordState, Seat
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.state import ActionState


def recover(cache: Cache, records: Sequence[Record]) -> tuple[tuple[str, ...], list[tuple[Gang, Record]]]:
    """Apply records to the gangs of the snapshot; returns the gangs whose records are void, and the others with their
    records.

    Permits are restored in the order in which they were granted. A gang without a record counts as satisfied if one of
    its pods is bound.
    """
    void, resumed = [], []
    for record in sorted(records, key=lambda record: (record.permitted_unix_millis, record.gang)):
        gang = cache.gangs.get(record.gang)
        if gang is None or not _same(gang, record) or _begins_anew(gang, record):
            void.append(record.gang)
        else:
            _resume(cache, gang, record)
            resumed.append((gang, record))
    for gang in cache.gangs.values():
        if gang.permit.record is None and (gang.bound or _ran(gang)):
            gang.permit.adopt()
        if gang.permit.granted:
            cache.regroup(gang)
            cache.touch(gang, edited=True)
        elif gang.all_present:  # the earliest time that is known now
            gang.timing.ready(float(max(pod.created_seconds for pod in gang.pods.values())))
    return tuple(void), resumed


def _same(gang: Gang, record: Record) -> bool:
    """The record is of this incarnation, or one of its pods is still a member."""
    facts = gang.facts
    if facts is not None and facts.incarnation == record.incarnation:
        return True
    if any(pod.uid in gang.pods for pod in (*record.timing_out, *record.evicting)):
        return True
    return any(seat.uid in gang.pending or seat.uid in gang.bound for seat in record.seats)


def _begins_anew(gang: Gang, record: Record) -> bool:
    """No permitted pod is left, and there are others: created while there was no leader."""
    facts = gang.facts
    if facts is None or not facts.starts_anew or record.state is RecordState.UNPERMITTED or not gang.pending:
        return False
    return not (gang.bound or gang.succeeded or any(seat.uid in gang.pending for seat in record.seats))


def _ran(gang: Gang) -> bool:
    """A single pod that was bound, and has ended or is terminating."""
    return gang.plain and any(pod.node for pod in gang.pods.values())


def _resume(cache: Cache, gang: Gang, record: Record) -> None:
    gang.restore(record)
    if not gang.permit.granted:
        return
    # The pod's class counts, not the record's: another version of Muster may name classes differently.
    seats = [
        replace(seat, class_id=gang.pending[seat.uid].class_id) for seat in record.seats if seat.uid in gang.pending
    ]
    if not seats:
        return
    if cache.ledger.refusal(_demand(seats)) is None:
        _reserve(cache, gang, seats)
        return
    for seat in seats:
        if cache.ledger.refusal(_demand([seat])) is None:
            _reserve(cache, gang, [seat])
        else:
            gang.lose_recorded_seat(seat.uid)


def _reserve(cache: Cache, gang: Gang, seats: Sequence[Seat]) -> None:
    cache.ledger.reserve(seats)
    for seat in seats:
        gang.take_seat(seat, ActionState.SENT)


def _demand(seats: Sequence[Seat]) -> Counter[tuple[str, str]]:
    return Counter((seat.node, seat.class_id) for seat in seats)
