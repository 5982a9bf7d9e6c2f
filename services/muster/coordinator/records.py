"""Gang records in etcd: encoding, loading, and the writer that commits Persist effects in order."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic

import msgspec
import structlog
from google.protobuf.message import DecodeError

from muster.coordinator.core.effects import Persist
from muster.coordinator.core.events import NotPersisted, Persisted, PodName, Record, RecordState, Seat, ShrunkSubgroup
from muster.coordinator.core.slices import OBJECTS
from muster.coordinator.v1 import record_pb2 as pb
from muster.devices.extended_resources import EXTENDED_CLAIM
from muster.devices.facts import Allocation
from muster.etcd.errors import TooLarge
from muster.etcd.store import Fence, Store
from muster.gangs.solve import PodsOnNode

MAX_KEYS_PER_COMMIT = 100
"""etcd's default limit is 128 operations per transaction."""
GATHER_SECONDS = 0.1
"""Longest wait of effects for which nothing waits."""

_log = structlog.get_logger()


class BadRecord(ValueError):
    """A record in etcd that cannot be decoded."""


def encode(record: Record, traceparent: str, leader_epoch: int) -> bytes:
    """Encodes a record as the value of its key."""
    seats: defaultdict[tuple[str, str], list[pb.SeatedPod]] = defaultdict(list)
    ranks = dict(record.ranks)
    allocations: _Allocations = {}
    for seat in record.seats:
        pod = pb.SeatedPod(
            uid=seat.uid,
            namespace=seat.namespace,
            name=seat.name,
            rank=ranks.pop(seat.uid, None),
            volumes=dict(seat.volumes),
            devices=_encoded_devices(seat, allocations) if seat.devices else None,
        )
        seats[seat.node, seat.class_id].append(pod)
    return pb.GangRecord(
        id=record.gang,
        incarnation=record.incarnation,
        state=pb.GangRecord.State.ValueType(record.state),
        seats=[pb.Seat(node=node, class_id=class_id, pods=pods) for (node, class_id), pods in seats.items()],
        schedule_cycle=record.schedule_cycle,
        group=record.group,
        traceparent=traceparent,
        permitted_unix_millis=record.permitted_unix_millis,
        leader_epoch=leader_epoch,
        waiting_since_unix_millis=record.waiting_since_unix_millis,
        timed_out_declaration=record.timed_out_declaration,
        timing_out=_pods(record.timing_out),
        evicting=_pods(record.evicting),
        evicted_for=record.evicted_for,
        nominated=[
            pb.NominatedCapacity(node=room.node, class_id=room.class_id, count=room.count) for room in record.nominated
        ],
        ranked=[pb.RankedPod(uid=uid, rank=rank) for uid, rank in ranks.items()],
        tries=record.tries,
        preempted_by=record.preempted_by,
        shrinks=record.shrinks,
        grows_after_unix_millis=record.grows_after_unix_millis,
        met_minimum=record.met_minimum,
        revoked=record.revoked,
        shrunk_subgroups=[
            pb.ShrunkSubgroup(
                name=each.name, shrinks=each.shrinks, grows_after_unix_millis=each.grows_after_unix_millis
            )
            for each in record.shrunk_subgroups
        ],
        claims_first=record.claims_first,
    ).SerializeToString()


_Allocations = dict[tuple[str, str], Allocation]
"""Allocations of claims that pods share, by namespace and name of the claim."""


def _encoded_devices(seat: Seat, known: _Allocations) -> dict[str, bytes]:
    """Allocations of a seat; empty if they are known from another one. Others are added to the known ones."""
    encoded: dict[str, bytes] = {}
    for claim, allocation in seat.devices:
        key = (seat.namespace, claim if claim != EXTENDED_CLAIM else f"{claim} of {seat.name}")
        encoded[claim] = b"" if known.get(key) == allocation else msgspec.json.encode(allocation)
        known.setdefault(key, allocation)
    return encoded


def _allocations(message: pb.GangRecord) -> _Allocations:
    """Allocations of the record. Raises DecodeError."""
    found: _Allocations = {}
    for pod in (pod for seat in message.seats for pod in seat.pods if pod.devices):
        for claim, content in pod.devices.items():
            if content:
                found[pod.namespace, claim] = _allocation(pod, content)
    return found


def _devices(pod: pb.SeatedPod, shared: _Allocations) -> tuple[tuple[str, Allocation], ...]:
    """Raises DecodeError."""
    found = []
    for claim, content in sorted(pod.devices.items()):
        allocation = _allocation(pod, content) if content else shared.get((pod.namespace, claim))
        if allocation is None:
            raise DecodeError(f"devices of pod {pod.namespace}/{pod.name}: none for ResourceClaim {claim}")
        found.append((claim, allocation))
    return tuple(found)


def _allocation(pod: pb.SeatedPod, content: bytes) -> Allocation:
    try:
        return msgspec.json.decode(content, type=Allocation)
    except msgspec.DecodeError as error:
        raise DecodeError(f"devices of pod {pod.namespace}/{pod.name}: {error}") from error


def decode(key: str, value: bytes) -> tuple[Record, str]:
    """Decodes a record and its traceparent. Raises BadRecord, which names the key."""
    try:
        message = pb.GangRecord.FromString(value)
        state = RecordState(message.state)
        shared = _allocations(message)
        devices = {pod.uid: _devices(pod, shared) for seat in message.seats for pod in seat.pods if pod.devices}
    except (DecodeError, ValueError) as error:
        raise BadRecord(f"record {key!r} in etcd cannot be decoded ({error}); inspect it, then delete it") from error
    seats = tuple(
        Seat(
            pod.uid,
            pod.namespace,
            pod.name,
            seat.class_id,
            seat.node,
            volumes=tuple(sorted(pod.volumes.items())) if pod.volumes else (),
            devices=devices.get(pod.uid, ()),
        )
        for seat in message.seats
        for pod in seat.pods
    )
    record = Record(
        gang=message.id,
        incarnation=message.incarnation,
        state=state,
        seats=seats,
        schedule_cycle=max(1, message.schedule_cycle),
        group=tuple(message.group),
        permitted_unix_millis=message.permitted_unix_millis,
        waiting_since_unix_millis=message.waiting_since_unix_millis,
        timed_out_declaration=message.timed_out_declaration,
        timing_out=_pod_names(message.timing_out),
        evicting=_pod_names(message.evicting),
        evicted_for=message.evicted_for,
        nominated=tuple(PodsOnNode(room.node, room.class_id, room.count) for room in message.nominated),
        ranks=_ranks(message),
        tries=message.tries,
        preempted_by=message.preempted_by,
        shrinks=message.shrinks,
        grows_after_unix_millis=message.grows_after_unix_millis,
        met_minimum=message.met_minimum,
        revoked=message.revoked,
        shrunk_subgroups=tuple(
            ShrunkSubgroup(each.name, each.shrinks, each.grows_after_unix_millis) for each in message.shrunk_subgroups
        ),
        claims_first=message.claims_first,
    )
    return record, message.traceparent


def _ranks(message: pb.GangRecord) -> tuple[tuple[str, int], ...]:
    seated = ((pod.uid, pod.rank) for seat in message.seats for pod in seat.pods if pod.HasField("rank"))
    others = ((pod.uid, pod.rank) for pod in message.ranked)
    return tuple(sorted((*seated, *others), key=lambda pair: pair[1]))


def _pods(names: Iterable[PodName]) -> list[pb.SeatedPod]:
    return [pb.SeatedPod(uid=pod.uid, namespace=pod.namespace, name=pod.name) for pod in names]


def _pod_names(pods: Iterable[pb.SeatedPod]) -> tuple[PodName, ...]:
    return tuple(PodName(pod.uid, pod.namespace, pod.name) for pod in pods)


async def load(store: Store, prefix: str) -> list[tuple[Record, str]]:
    """Loads all records with their traceparents. Logs a record that cannot be decoded, and leaves it in etcd."""
    records = []
    for number, (key, value) in enumerate(await store.get_prefix(f"{prefix}/gangs/"), start=1):
        try:
            records.append(decode(key, value))
        except BadRecord as error:
            _log.error("record_undecodable", key=key, error=str(error))
        if number % OBJECTS == 0:
            await asyncio.sleep(0)  # I12
    return records


class RecordWriter:
    """Commits Persist effects in their order. Effects that pile up share a transaction; none is split between two.

    Effects for which nothing waits wait for others, for `gather_seconds` at most: a busy leader writes that a gang has
    started together with the permits of the next ones.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        fence: Fence,
        traceparent_of: Callable[[str], str],
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        self._gather_seconds = gather_seconds
        self._store, self._prefix, self._fence, self._traceparent_of = store, prefix, fence, traceparent_of
        self._queue: asyncio.Queue[Persist] = asyncio.Queue()
        self._awaited = asyncio.Event()
        """Set while the queue may have an effect for which something waits."""

    @property
    def pending(self) -> int:
        """Number of effects in the queue."""
        return self._queue.qsize()

    def put(self, effect: Persist) -> None:
        self._queue.put_nowait(effect)
        if effect.awaited:
            self._awaited.set()

    async def run(self, written: Callable[[Sequence[Persisted | NotPersisted]], None]) -> None:
        """Commits until it fails. Raises Fenced and EtcdUnavailable, which end the term."""
        next_effect: Persist | None = None
        while True:
            effects = [next_effect or await self._queue.get()]
            if next_effect is None:
                await self._gather()
            next_effect = None
            size = len(effects[0].puts) + len(effects[0].deletes)
            while not self._queue.empty():
                effect = self._queue.get_nowait()
                size += len(effect.puts) + len(effect.deletes)
                if size > MAX_KEYS_PER_COMMIT:
                    next_effect = effect
                    break
                effects.append(effect)
            try:
                await self._commit(effects)
                written([Persisted(effect.persist_id) for effect in effects])
            except TooLarge:
                for effect in effects:
                    written([await self._commit_alone(effect)])

    async def _gather(self) -> None:
        """Wait for more effects, until something waits for one of them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._gather_seconds):
                await self._awaited.wait()
        self._awaited.clear()

    async def _commit_alone(self, effect: Persist) -> Persisted | NotPersisted:
        try:
            await self._commit([effect])
        except TooLarge as error:
            return NotPersisted(effect.persist_id, f"the permit is too large for etcd: {error}")
        return Persisted(effect.persist_id)

    async def _commit(self, effects: Sequence[Persist]) -> None:
        last: dict[str, Record | None] = {}  # a transaction may name a key once: the last write of each gang
        for effect in effects:
            last.update((record.gang, record) for record in effect.puts)
            last.update(dict.fromkeys(effect.deletes))
        epoch = self._fence.create_revision
        puts = {
            self._key(gang): encode(record, self._traceparent_of(gang), epoch)
            for gang, record in last.items()
            if record is not None
        }
        deletes = [self._key(gang) for gang, record in last.items() if record is None]
        started = monotonic()
        await self._store.commit(self._fence, puts, deletes)
        _log.debug("records_written", puts=len(puts), deletes=len(deletes), seconds=round(monotonic() - started, 4))

    def _key(self, gang: str) -> str:
        return f"{self._prefix}/gangs/{gang}"
