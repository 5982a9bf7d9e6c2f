"""Gangs that start together: those permitted with each other of which no member runs yet. If any of their pods has
claims, none is bound before the claims of all are ready. Otherwise a volume that cannot be made would leave the gang
partial, or its gang group (I1).

gang                                   starts with
member of a gang group                 the gangs that were permitted as its group and have not begun to run
in a composite that has not started    the gangs with a permit below the same root to start that have not begun to run
any other, and one that has begun      no other gang

Until the first bind a start can be undone: gangs that cannot start whole return to the queue, and with them all gangs
that need them. A gang that has begun to run is finished or repaired instead (I6).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from muster.coordinator.core.events import Seat
from muster.coordinator.core.gang.composite_trees import (
    Children,
    able_to_start,
    composites_of,
    gangs_of_tree,
    has_started,
    root_to_start,
)
from muster.coordinator.core.gang.gang import Gang

Start = tuple[Gang, ...]
"""Gangs that start together, or one gang."""


def starts_of(gangs: Iterable[Gang], known: Mapping[str, Gang]) -> Iterator[Start]:
    """The starts to which these gangs belong, each once. `known` are all gangs by id."""
    seen: set[Gang] = set()
    for gang in gangs:
        if gang not in seen:
            start = start_of(gang, known)
            seen.update(start)
            yield start


def start_of(gang: Gang, known: Mapping[str, Gang]) -> Start:
    """The gangs with which this gang starts, itself included, in an order that is the same for all of them."""
    if not _is_starting(gang):
        return (gang,)
    if composites_of(gang):
        start = _starting_in_composite(gang, known)
        return start if gang in start else (gang,)  # another gang has its name by now
    ids = _permitted_with(gang)
    if len(ids) < 2:
        return (gang,)
    partners = [gang if id_ == gang.id else known.get(id_) for id_ in ids]
    start = tuple(each for each in partners if each is not None and (each is gang or _is_partner(each, gang)))
    return start if gang in start else (gang,)


def claims_first(start: Start) -> bool:
    """No member of these gangs runs yet, and some have claims, or had when they were permitted, of gangs that may be
    gone since: none is bound before the volumes of all exist and their devices are allocated.
    """
    return any(_permitted_with_claims(gang) or starts_with_claims(gang, gang.unbound_seats) for gang in start)


def joins_claims_first(gangs: Sequence[Gang], known: Mapping[str, Gang]) -> bool:
    """Gangs of one group, which get their permit now, are bound as `claims_first`: some have claims, or gangs whose
    start they join. `known` are all gangs by id.
    """
    if any(starts_with_claims(gang, gang.unbound_seats) for gang in gangs):
        return True
    return any(map(_permitted_with_claims, _starting_in_composite(gangs[0], known)))


def starts_with_claims(gang: Gang, seats: Iterable[Seat]) -> bool:
    """No member of the gang runs yet, and some of these seats have claims."""
    if gang.bound or gang.acknowledged:
        return False
    pods = gang.pods
    return any(pods[seat.uid].claims or pods[seat.uid].device_claims or seat.devices for seat in seats)


def able_without(start: Start, failing: Collection[str], known: Mapping[str, Gang]) -> frozenset[Gang]:
    """The gangs of the start that can start whole without these members: in a gang group all of them or none, in a
    composite those with enough others.
    """
    first = start[0]
    if not _is_starting(first):  # it runs, or ran: there is nothing to be undone
        return frozenset(start if not failing or _is_complete(first, failing) else ())
    complete = [gang for gang in start if _is_complete(gang, failing)]
    if composites_of(first):
        return frozenset(able_to_start(complete, start, known))
    whole = len(complete) == len(start) and not any(_lacks_partner(gang, known) for gang in start)
    return frozenset(start if whole else ())


def _is_starting(gang: Gang) -> bool:
    """The gang has a permit, and none of its members runs or has run under it."""
    if not gang.permit.granted or gang.permit.fulfilled:
        return False
    return not (gang.bound or gang.acknowledged or gang.eviction.pods or gang.succeeded_to_stay)


def _permitted_with_claims(gang: Gang) -> bool:
    record = gang.permit.record
    return bool(gang.seats) and record is not None and record.claims_first and _is_starting(gang)


def _permitted_with(gang: Gang) -> tuple[str, ...]:
    return gang.permit.record.group if gang.permit.record is not None else ()


def _is_partner(partner: Gang, gang: Gang) -> bool:
    return _is_starting(partner) and gang.id in _permitted_with(partner) and not composites_of(partner)


def _starting_in_composite(gang: Gang, known: Mapping[str, Gang]) -> Start:
    """The gangs that start below the same root to start."""
    if not composites_of(gang):
        return ()
    tree = gangs_of_tree(gang, known)
    started = Children(tree, lambda each: has_started(each) and not _is_starting(each))
    root = root_to_start(gang, started)
    if root is None:
        return ()
    return tuple(each for each in tree if _is_starting(each) and _starts_below(each, root.name, started))


def _starts_below(gang: Gang, root: str, started: Children) -> bool:
    own = root_to_start(gang, started)
    return own is not None and own.name == root


def _is_complete(gang: Gang, failing: Collection[str]) -> bool:
    """The gang has its minimum without these members."""
    lost = sum(uid in failing for uid in gang.seats)
    if lost and (gang.facts is None or not gang.minimum_known or gang.facts.subgroups):
        return False
    return len(gang.bound) + len(gang.acknowledged) + len(gang.seats) - lost >= gang.required


def _lacks_partner(gang: Gang, known: Mapping[str, Gang]) -> bool:
    """A gang that was permitted with this one is gone, or returned to the queue."""
    return any((partner := known.get(id_)) is None or not partner.permit.granted for id_ in _permitted_with(gang))
