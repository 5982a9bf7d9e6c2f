"""What the console reads of the coordinator's records: reservations, nominations, preemptions and ranks. No I/O."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from muster.console.cluster import Cluster


class RecordedSeat(Struct, frozen=True, gc=False):
    """A pod with a decided node."""

    uid: str
    class_id: str
    node: str


class RecordedPods(Struct, frozen=True, gc=False):
    """A number of pods of one class on one node."""

    node: str
    class_id: str
    count: int


class Record(Struct, frozen=True):
    """The fields that are shown; others are ignored."""

    gang: str
    state: int = 0
    seats: tuple[RecordedSeat, ...] = ()
    permitted_unix_millis: int = 0
    waiting_since_unix_millis: int = 0
    evicting: tuple[msgspec.Raw, ...] = ()
    evicted_for: str = ""
    nominated: tuple[RecordedPods, ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()
    preempted_by: str = ""
    revoked: bool = False


decode_record: Final = msgspec.json.Decoder(Record).decode


class HeldSeat(Struct, frozen=True):
    """A pod that holds a reservation without a permit."""

    node: str
    class_id: str
    namespace: str


class Withheld(Struct, frozen=True):
    """Capacity that pods without a node there hold, by node and resource, and by namespace and resource."""

    reserved: dict[str, Counter[str]] = {}
    nominated: dict[str, Counter[str]] = {}
    reserved_by: dict[str, Counter[str]] = {}

    def nodes(self) -> set[str]:
        """Names of all nodes with such capacity."""
        return self.reserved.keys() | self.nominated.keys()


def withheld(records: Iterable[Record], held: Iterable[HeldSeat], cluster: Cluster) -> Withheld:
    """Reserved and nominated capacity."""
    result = Withheld({}, {}, {})
    for record in records:
        for seat in record.seats:
            pod = cluster.pods.get(seat.uid)
            if pod is None or not pod.seated:
                _add(result.reserved, seat.node, seat.class_id, 1, cluster)
                _add(result.reserved_by, namespace_of(record.gang), seat.class_id, 1, cluster)
        for pods in record.nominated:
            _add(result.nominated, pods.node, pods.class_id, pods.count, cluster)
    for each in held:
        _add(result.reserved, each.node, each.class_id, 1, cluster)
        _add(result.reserved_by, each.namespace, each.class_id, 1, cluster)
    return result


def namespace_of(gang: str) -> str:
    """Namespace in a gang's id."""
    return gang.split("/", 2)[1] if gang.count("/") >= 2 else ""


def _add(amounts: dict[str, Counter[str]], key: str, class_id: str, pods: int, cluster: Cluster) -> None:
    of_key = amounts.setdefault(key, Counter())
    for resource, amount in cluster.requests(class_id):
        of_key[resource] += pods * amount


class Preemption(Struct):
    """Pods of a victim that were, or are being, evicted for a preemptor. `pods`: at most so many at once; 0: not known.
    `borrowed`: they ran on capacity that was reserved for the preemptor.
    """

    victim: str
    preemptor: str
    pods: int
    seen_seconds: int
    borrowed: bool = False
    under_way: bool = True


class Preemptions:
    """The preemptions that records show, and the last ones that are over."""

    _MAX_OVER: Final = 500

    def __init__(self) -> None:
        self.current: dict[str, Preemption] = {}
        """By victim."""
        self.over: list[Preemption] = []

    def update(self, records: Iterable[Record], now_seconds: int) -> None:
        """Take in all records."""
        seen = {record.gang: record for record in records if record.preempted_by or record.evicted_for}
        for victim in self.current.keys() - seen.keys():
            self._end(victim)
        for victim, record in seen.items():
            preemptor = record.preempted_by or record.evicted_for
            before = self.current.get(victim)
            if before is not None and before.preemptor != preemptor:
                self._end(victim)
                before = None
            if before is None:
                before = self.current[victim] = Preemption(victim, preemptor, 0, now_seconds)
            before.pods = max(before.pods, len(record.evicting))
            before.borrowed = before.borrowed or record.revoked

    def _end(self, victim: str) -> None:
        ended = self.current.pop(victim)
        ended.under_way = False
        self.over.append(ended)
        del self.over[: -self._MAX_OVER]
