"""Gangs that want so much to be free in the whole cluster before they are tried: is it?"""

from collections import Counter
from collections.abc import Iterable, Iterator

from muster.coordinator.core.amounts import in_units
from muster.coordinator.core.gang import Gang
from muster.coordinator.core.ledger import Ledger


def lacks_room_in_all(gang: Gang, ledger: Ledger) -> str | None:
    """What is less free in all than the gang wants, in words; None: nothing is.

    What its members that are placed together ask themselves is left to placement, which knows more than the sum: it
    says what is short, and who could make room. What its group holds already counts as free for it, and it does not
    wait any more once it has all that it needs to start.
    """
    facts = gang.facts
    if facts is None or not facts.resources or gang.lacking <= 0:
        return None
    theirs = _asked((class_id for each in gang.group.gangs for class_id in _held(each)), ledger)
    waiting = _asked((pod.class_id for pod in gang.waiting.values()), ledger)
    asked = Counter[str]() if gang.group.accumulates else _asked(_held(gang), ledger) + waiting
    short = []
    for name, amount in facts.resources:
        free = ledger.free_in_all(name) + theirs[name] if amount > asked[name] else amount
        if free < amount:
            short.append(f"{in_units(name, amount)} {name} ({in_units(name, max(0, free))} now)")
    return f"it waits until so much is free in the whole cluster: {', '.join(short)}" if short else None


def _held(gang: Gang) -> Iterator[str]:
    """Classes of its members that have a place."""
    yield from (seat.class_id for seat in (*gang.outstanding, *gang.acked.values()))
    yield from (gang.pods[uid].class_id for uid in gang.bound)


def _asked(class_ids: Iterable[str], ledger: Ledger) -> Counter[str]:
    asked: Counter[str] = Counter()
    for class_id, count in Counter(class_ids).items():
        for name, amount in ledger.classes[class_id].requests:
            asked[name] += amount * count
    return asked
