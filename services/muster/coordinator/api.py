"""The coordinator's gRPC API: lists, explains and watches gangs. Only the leader answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable
from dataclasses import fields
from time import monotonic, time
from typing import Any

import grpc
import msgspec

from muster.coordinator.core.events import Now, Rules
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.machine import DEFAULTS
from muster.coordinator.core.report import explain
from muster.coordinator.core.report.device_shortages import ClaimedDevices, claimed_devices
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.slices import GANGS, OBJECTS, Slices
from muster.coordinator.core.term_state import TermState
from muster.coordinator.term import Term
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from muster.devices.explanation import RequestShortage
from muster.etcd.election import LeaderKey
from muster.etcd.errors import EtcdUnavailable
from muster.rpc.errors import RpcError
from muster.rpc.solve_codec import encode_explanation
from muster.rpc.watch_codec import encode_problem

FULL_NAME = "muster.coordinator.v1.CoordinatorService"
COALESCE_SECONDS = 0.05
"""Changes of a gang within this time are sent as one."""
GANGS_PER_MESSAGE = 1000
STATE_BYTES_PER_MESSAGE = 1 << 20
READINGS = 5
"""How often records and the state of the term are read until no step takes place meanwhile."""


class CoordinatorServicer(pb_grpc.CoordinatorServiceServicer):
    """Answers from the machine of the current term. Each gang is described between two steps, so consistently; between
    two gangs of a long answer, which is built in slices, steps may take place (I12).
    """

    def __init__(self) -> None:
        self._term: Term | None = None
        self._leader: Callable[[], Awaitable[LeaderKey | None]] | None = None
        self._watchers: set[Watcher] = set()

    def lead(self, term: Term) -> None:
        """Answers from `term`, which begins."""
        self._term = term
        term.on_gang_changed, term.on_synced = self._gang_changed, self._wake

    def standby(self, leader: Callable[[], Awaitable[LeaderKey | None]]) -> None:
        """Stops answering about gangs; `leader` reads the leader key, from now on."""
        self._term, self._leader = None, leader
        self._wake()

    async def Leader(self, request: pb.LeaderRequest, context: Any) -> pb.LeaderResponse:  # noqa: N802
        if self._leader is None:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "this replica is starting")
        try:
            leader = await self._leader()
        except EtcdUnavailable as error:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, f"the leader key cannot be read: {error}") from error
        if leader is None:
            return pb.LeaderResponse()
        return pb.LeaderResponse(identity=leader.identity, epoch=leader.create_revision)

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListResponse:  # noqa: N802
        term = await self._synced_term()
        response = pb.ListResponse()
        ids = await term.between_steps(explain.in_order(term.machine.cache, request.namespace))
        await term.between_steps(_describe(term, ids, response.gangs.append))
        self._check_current(term)
        return response

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:  # noqa: N802
        term = await self._synced_term()
        if not request.gang:
            raise RpcError(grpc.StatusCode.INVALID_ARGUMENT, "no gang was named: give its id, namespace/name, or name")
        try:
            gang = await term.between_steps(explain.find(term.machine.cache.gangs, request.gang))
        except explain.UnknownGang as error:
            raise RpcError(grpc.StatusCode.NOT_FOUND, str(error)) from error
        except explain.AmbiguousGang as error:
            raise RpcError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        response = await term.between_steps(_explain_response(term, gang))
        self._check_current(term)
        return response

    async def Records(  # noqa: N802
        self, request: pb.RecordsRequest, context: Any
    ) -> AsyncIterator[pb.RecordsResponse]:
        term = await self._synced_term()
        yield pb.RecordsResponse(settings=_changed_rules(term.machine.rules))
        records, state = await _of_one_moment(term)
        encoded = await asyncio.to_thread(msgspec.json.encode, state)
        self._check_current(term)
        for start in range(0, len(records), GANGS_PER_MESSAGE):
            yield pb.RecordsResponse(records=records[start : start + GANGS_PER_MESSAGE])
        for start in range(0, len(encoded), STATE_BYTES_PER_MESSAGE):
            yield pb.RecordsResponse(term_state=encoded[start : start + STATE_BYTES_PER_MESSAGE])

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        term = await self._current_term()
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            while not term.synced:
                await watcher.next_changes()
                self._check_current(term)
            ids = await term.between_steps(explain.in_order(term.machine.cache, request.namespace))
            async for response in _messages(term, ids):
                watcher.add_sent((gang.id for gang in response.gangs), term.machine.cache.gangs)
                yield response
            yield pb.WatchResponse(synced=True)
            while True:
                changed = await watcher.next_changes()
                await term.settled()
                self._check_current(term)
                known = term.machine.cache.gangs
                listed = {id_ for id_ in changed if id_ in known and not is_over(known[id_])}
                there = [id_ for id_ in changed if id_ in listed and _in_namespace(id_, request.namespace)]
                removed = [id_ for id_ in changed if id_ not in listed and id_ in watcher.sent]
                watcher.sent.difference_update(removed)
                if removed:
                    yield pb.WatchResponse(removed=removed)
                async for response in _messages(term, there):
                    self._check_current(term)
                    watcher.add_sent((gang.id for gang in response.gangs), known)
                    yield response
        finally:
            self._watchers.discard(watcher)

    def _gang_changed(self, gang: str) -> None:
        exists = self._term is not None and gang in self._term.machine.cache.gangs
        for watcher in self._watchers:
            watcher.add(gang, exists=exists)

    def _wake(self) -> None:
        for watcher in self._watchers:
            watcher.wake()

    def _check_current(self, term: Term) -> None:
        if self._term is not term:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "this replica no longer leads")

    async def _synced_term(self) -> Term:
        """Returns the current term after its first snapshot: before, it knows no gangs."""
        term = await self._current_term()
        if not term.synced:
            raise RpcError(
                grpc.StatusCode.UNAVAILABLE,
                "this replica leads, but has no state of the cluster yet",
            )
        await term.settled()
        return term

    async def _current_term(self) -> Term:
        if self._term is not None:
            return self._term
        try:
            leader = await self._leader() if self._leader is not None else None
        except EtcdUnavailable as error:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, f"this replica does not lead; {error}") from error
        found = f"{leader.identity} leads" if leader else "no replica leads now"
        raise RpcError(grpc.StatusCode.UNAVAILABLE, f"this replica does not lead; {found}")


class Watcher:
    """Ids of gangs that changed since the last message of one Watch call: of gangs that exist, or that the caller was
    sent. So a caller that does not read costs no more than the gangs that there are and were then (I11).
    """

    def __init__(self) -> None:
        self.sent: set[str] = set()
        """Ids of gangs that the caller was sent, and not that they are removed."""
        self._changed: dict[str, None] = {}
        self._woken = asyncio.Event()

    def add(self, gang: str, *, exists: bool) -> None:
        if exists or gang in self.sent:
            self._changed[gang] = None
            self._woken.set()
        else:
            self._changed.pop(gang, None)

    def add_sent(self, ids: Iterable[str], existing: Container[str]) -> None:
        """The caller is sent these gangs, some of which may be removed since they were described."""
        for id_ in ids:
            self.sent.add(id_)
            if id_ not in existing:
                self.add(id_, exists=False)

    def wake(self) -> None:
        self._woken.set()

    async def next_changes(self) -> list[str]:
        await self._woken.wait()
        await asyncio.sleep(COALESCE_SECONDS)
        changed, self._changed = list(self._changed), {}
        self._woken.clear()
        return changed


def _in_namespace(gang: str, namespace: str) -> bool:
    return not namespace or gang.split("/", 2)[1] == namespace


def is_over(gang: Gang) -> bool:
    """Returns whether a gang waits for nothing: its definition is gone, as after a finished job, and its pods have
    ended. Such a gang is explained, but not listed.
    """
    facts = gang.facts
    if not gang.pods or gang.pending or gang.bound or gang.seats or gang.acknowledged:
        return False
    undefined = facts is None or (facts.definition is None and facts.blocked)
    return undefined and all(pod.phase.ended for pod in gang.pods.values())


def _describe(term: Term, ids: Iterable[str], add: Callable[[pb.Gang], None]) -> Slices[None]:
    """Add the gangs with these ids, without those that are over or deleted meanwhile."""
    for number, id_ in enumerate(ids, start=1):
        if (gang := term.machine.cache.gangs.get(id_)) is not None and not is_over(gang):
            add(_gang(term, gang))
        if number % GANGS == 0:
            yield


def _records(term: Term, ids: Iterable[str], add: Callable[[bytes], None]) -> Slices[None]:
    """Add the records of the gangs with these ids, as far as they have one."""
    for number, id_ in enumerate(ids, start=1):
        gang = term.machine.cache.gangs.get(id_)
        if gang is not None and gang.permit.record is not None:
            add(msgspec.json.encode(gang.permit.record))
        if number % GANGS == 0:
            yield


async def _of_one_moment(term: Term) -> tuple[list[bytes], TermState]:
    """All records, and the state of the term. If steps take place meanwhile, they are read again; the last time they
    are taken as they are.
    """
    for _ in range(READINGS):
        steps, records = term.machine.steps, list[bytes]()
        await term.between_steps(_records(term, list(term.machine.cache.gangs), records.append))
        state = await term.between_steps(term.machine.term_state(Now(monotonic(), time())))
        if term.machine.steps == steps:
            return records, state
    return records, state.outdated()


def _changed_rules(rules: Rules) -> dict[str, str]:
    """The rules that differ from their defaults, by the names of their settings."""
    names = (each.name for each in fields(Rules))
    return {
        name.replace("_", "-"): str(getattr(rules, name)).lower()
        for name in names
        if getattr(rules, name) != getattr(DEFAULTS, name)
    }


async def _messages(term: Term, ids: list[str]) -> AsyncIterator[pb.WatchResponse]:
    for start in range(0, len(ids), GANGS_PER_MESSAGE):
        response = pb.WatchResponse()
        await term.between_steps(_describe(term, ids[start : start + GANGS_PER_MESSAGE], response.gangs.append))
        if response.gangs:
            yield response


def _gang(term: Term, gang: Gang) -> pb.Gang:
    facts = gang.facts
    prefix, namespace, name = gang.id.split("/", 2)
    return pb.Gang(
        id=gang.id,
        dialect=facts.dialect if facts is not None else prefix,
        namespace=namespace,
        name=name,
        phase=pb.Phase.ValueType(gang.phase),
        minimum=facts.minimum if facts is not None else 0,
        members=gang.member_count,
        bound=len(gang.bound) + len(gang.acknowledged),
        reason=reason(gang),
        trace_id=term.traces.sampled_trace_id(gang.id),
        priority=gang.priority,
        created_seconds=facts.created_seconds if facts is not None else 0,
        start_seconds=gang.timing.start_seconds,
        schedule_cycle=gang.attempts.cycle.number,
        reserved=len(gang.seats),
        terms=facts.terms if facts is not None else (),
    )


def _claimed_devices(claimed: ClaimedDevices) -> pb.ClaimedDevices:
    return pb.ClaimedDevices(
        pod=f"{claimed.pod.namespace}/{claimed.pod.name}",
        pods=claimed.pods,
        requests=map(_device_request, claimed.requests),
        conflict=claimed.conflict.why,
    )


def _device_request(request: RequestShortage) -> pb.DeviceRequest:
    return pb.DeviceRequest(
        claim=request.claim,
        request=request.request,
        device_class=request.device_class,
        wanted=request.wanted,
        devices=request.devices,
        matching=request.matching,
        unusable=request.unusable,
        unsupported=request.unsupported,
        elsewhere=request.elsewhere,
        taken=request.taken,
        tainted=request.tainted,
        free=request.free,
        most_free=request.most_free,
        excluding_selector=request.excluded[0],
        excluded=request.excluded[1],
        taint=request.taint[0],
        holders=[pb.DeviceHolder(name=name, devices=number) for name, number in request.holders],
        more_holders=request.more_holders,
        error=request.error,
        extended_resource=request.resource,
        unsupported_features=request.features,
        summary=str(request),
    )


def _explain_response(term: Term, gang: Gang) -> Slices[pb.ExplainResponse]:
    turn, ahead = yield from explain.ahead_of(term.machine.queue, gang)
    facts, held_off = gang.facts, gang.growth.held_off
    response = pb.ExplainResponse(
        gang=_gang(term, gang),
        group=facts.group if facts is not None else (),
        queue_position=turn,
        ahead=ahead,
        attempts=gang.attempts.in_term,
        schedule_cycle_valid=gang.attempts.cycle.valid,
        problems=map(encode_problem, facts.problems if facts is not None else ()),
        would_help=explain.would_help(gang),
        waits_until_unix_millis=explain.waits_until_unix_millis(gang),
        grows_after_unix_millis=held_off.not_before_unix_millis if held_off is not None else 0,
        nodes_with_nominated_capacity=explain.nodes_with_nominated_capacity(term.machine.cache, gang),
        victims=explain.evicted_for(term.machine.cache, gang),
        rejected_placements=[
            pb.RejectedPlacements(reason=reason, count=count)
            for reason, count in sorted(gang.attempts.rejections.items())
        ],
    )
    if not response.gang.reason:
        response.gang.reason = explain.untried(gang, turn)
    if gang.group.solve.explanation is not None:
        response.explanation.CopyFrom(encode_explanation(gang.group.solve.explanation))
    yield
    claimed = yield from claimed_devices(term.machine.cache, gang)
    response.claimed_devices.extend(map(_claimed_devices, claimed))
    response.would_help.extend(dict.fromkeys(way for each in claimed for way in each.would_help))
    pods = sorted(gang.pods.values(), key=lambda pod: (len(pod.name), pod.name))
    for number, pod in enumerate(pods, start=1):
        response.members.append(
            pb.Member(
                pod=f"{pod.namespace}/{pod.name}",
                node=pod.node,
                reserved_node=explain.reserved_node(gang, pod),
                state=explain.pod_state(gang, pod),
            )
        )
        if number % OBJECTS == 0:
            yield
    return response
