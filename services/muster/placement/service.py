"""Placement service: mirrors cluster-state and answers Solve from the mirror.

Solves run one after another in the worker thread, so that the event loop goes on to answer health checks and other
calls, whatever a group asks for. Each ends before its caller's deadline, or when its caller gives up.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import grpc
import structlog
from grpc import aio

from muster.gangs.byte_cache import cached_by_number
from muster.gangs.facts import LevelConstraint, split_kind
from muster.gangs.solve import Composite, SolveGroup, SolveRequest
from muster.placement import metrics
from muster.placement.kernels.compilation import all_kernels
from muster.placement.settings import Settings
from muster.placement.solve.instance import result_of
from muster.placement.solve.solve import solve
from muster.placement.state.capacity import withhold
from muster.placement.state.cluster import Cluster
from muster.placement.state.mirror import Mirror, NoCluster, RevisionNotReached
from muster.placement.state.time_limit import UNLIMITED, TimeLimit
from muster.placement.state.trees import Trees
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.errors import RpcError
from muster.rpc.process import until_stopped
from muster.rpc.server import RpcServer
from muster.rpc.solve_codec import decode_solve_request, encode_solve_result, invalid_argument
from muster.rpc.subscription import Step, subscribe
from muster.rpc.watch_codec import encode_revision
from muster.telemetry.tracing import current_traceparent, record_span, tracer
from muster.topology.constraints import contradictions

FULL_NAME: Final = "muster.placement.v1.PlacementService"
IMPLEMENTATION: Final = "best-fit"
FEATURES: Final = (
    pb.FEATURE_PARTIAL,
    pb.FEATURE_PREEMPTION,
    pb.FEATURE_CONSTRAINTS,
    pb.FEATURE_POD_TOPOLOGY,
    pb.FEATURE_COMPOSITES,
    pb.FEATURE_HOST_PORTS,
    pb.FEATURE_POD_ANTI_AFFINITY,
    pb.FEATURE_NODE_SELECTION,
    pb.FEATURE_VOLUMES,
    pb.FEATURE_EXPLANATIONS,
)

_LARGE_REQUEST_BYTES: Final = 64 * 1024
"""Larger requests are decoded in the worker thread; smaller ones take less time than handing them over."""
_SLOW_SECONDS: Final = 0.25
"""Slower solves are logged at info."""
_ERROR_SECONDS: Final = 0.05
"""Reserved from the call's deadline for sending an error; at most a tenth of the remaining time."""
_ANSWER_SECONDS: Final = 1.0
"""Reserved from the call's deadline for giving up on groups and sending the answer; at most a fifth of the remaining
time.
"""
_MAX_WAIT_SECONDS: Final = 60.0
"""Limit for callers without a deadline."""

_log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Serve until SIGTERM, SIGINT or cancellation. Ready while the mirror is complete and current."""
    channel = open_channel(settings.cluster_state, settings.tls)
    mirror = Mirror()
    server = RpcServer.from_settings(settings, "placement")
    servicer = PlacementServicer(mirror, settings.seconds_per_group)
    server.add(pb_grpc.add_PlacementServiceServicer_to_server, servicer, FULL_NAME)
    try:
        async with asyncio.TaskGroup() as tasks:
            await server.start()
            following = tasks.create_task(
                _follow(mirror, lambda: subscribe(channel, f"placement/{settings.instance}"), server.set_ready)
            )
            try:
                await until_stopped()
            finally:
                await server.stop()
                following.cancel()
    finally:
        await channel.close()


async def _follow(
    mirror: Mirror, steps: Callable[[], AsyncGenerator[Step, None]], set_ready: Callable[[bool], None]
) -> None:
    """Load or compile the kernels, then follow cluster-state, so that no solve waits for the compiler."""
    began = time.monotonic()
    compiled = 0
    for kernel in all_kernels():
        compiled += await asyncio.to_thread(kernel.load)
    _log.info("kernels_loaded", compiled=compiled, seconds=round(time.monotonic() - began, 2))
    await mirror.follow(steps, set_ready)


class PlacementServicer(pb_grpc.PlacementServiceServicer):
    """PlacementService on a mirror. `clock`, in seconds, is read by the solves alone."""

    def __init__(
        self, mirror: Mirror, seconds_per_group: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mirror = mirror
        self._seconds_per_group = seconds_per_group
        self._clock = clock
        metrics.MIRRORED.read_from(self._object_counts)

    async def Solve(self, request: pb.SolveRequest, context: aio.ServicerContext[Any, Any]) -> pb.SolveResponse:  # noqa: N802
        decode = partial(decode_solve_request, request)
        is_large = request.ByteSize() > _LARGE_REQUEST_BYTES
        decoded = await self._mirror.worker.run(decode) if is_large else decode()
        min_revision = decoded.min_revision
        while True:
            with tracer().start_as_current_span("wait for revision"):
                await self._wait_for_revision(min_revision, context)
            async with self._mirror.lock:
                cluster = self._mirror.cluster
                if cluster is None or not self._mirror.current or not cluster.reached(min_revision):
                    continue  # lost or replaced while other solves ran
                left = _time_left(context)
                limit = TimeLimit(left - min(_ANSWER_SECONDS, left / 5), self._seconds_per_group, self._clock)
                started = time.monotonic()
                work = partial(_solve, cluster, request, decoded, limit)
                response = await self._mirror.worker.run(work, limit.abandon)
                _report(request, response, time.monotonic() - started, cluster)
                return response

    async def Describe(  # noqa: N802
        self, request: pb.DescribeRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.DescribeResponse:
        cluster = self._mirror.cluster
        response = pb.DescribeResponse(implementation=IMPLEMENTATION, version=version("muster"), features=FEATURES)
        if cluster is not None:
            response.revision.CopyFrom(encode_revision(cluster.revision))
            response.nodes = len(cluster.nodes)
            response.pods = cluster.capacity.seats
        return response

    def _object_counts(self) -> dict[tuple[str, ...], float]:
        cluster = self._mirror.cluster
        return {("nodes",): len(cluster.nodes), ("pods",): cluster.capacity.seats} if cluster is not None else {}

    async def _wait_for_revision(self, revision: dict[str, int], context: aio.ServicerContext[Any, Any]) -> None:
        left = _time_left(context)
        try:
            await self._mirror.reached(revision, left - min(_ERROR_SECONDS, left / 10))
        except RevisionNotReached as error:
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        except NoCluster as error:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, str(error)) from None


def _time_left(context: aio.ServicerContext[Any, Any]) -> float:
    """Seconds until the caller's deadline."""
    left = context.time_remaining()
    return _MAX_WAIT_SECONDS if left is None else max(0.0, left)


def _solve(cluster: Cluster, request: pb.SolveRequest, decoded: SolveRequest, limit: TimeLimit) -> pb.SolveResponse:
    """The answer; the cluster's state is as before. Raises RpcError, and Abandoned."""
    named = _class_ids(decoded)
    cluster.know_classes(named)
    _check_classes(named, cluster.pod_classes)
    _check_constraints(decoded.groups, cluster.state.trees)
    cluster.state.limit = limit
    limit.start()
    try:
        return _answer(cluster, request, decoded)
    finally:
        cluster.state.limit = UNLIMITED
        cluster.state.rollback(0)


def _answer(cluster: Cluster, request: pb.SolveRequest, decoded: SolveRequest) -> pb.SolveResponse:
    state, groups = cluster.state, decoded.groups
    response = pb.SolveResponse(revision=encode_revision(cluster.revision))
    with tracer().start_as_current_span("filter"):
        state.refresh()
        nominated = withhold(state, decoded.nominated)
        cluster.reserve((each.node, each.class_id, each.pod_uids) for each in decoded.reservations)
    with tracer().start_as_current_span("search", attributes={"muster.groups": len(groups)}):
        began = time.time_ns()
        answers = solve(state, groups, nominated, decoded.potential_victims)
        for message, group, answer in zip(request.groups, groups, answers, strict=True):
            encode_solve_result(result_of(group, answer), response.results.add())
            began = _record(message.traceparent, began, len(groups))
    return response


def _record(traceparent: str, began_unix_nanos: int, groups: int) -> int:
    """Records the search for one group in its gang's trace; returns the start time of the next search."""
    now = time.time_ns()
    if traceparent:
        attributes = {"muster.groups_in_batch": groups}
        # The RPC span is in the trace of the batch's first gang; the traces of other gangs link to it.
        call = current_traceparent()
        links = (call,) if call[3:35] != traceparent[3:35] else ()
        record_span("placement.search", began_unix_nanos, now, parent=traceparent, attributes=attributes, links=links)
    return now


def _report(request: pb.SolveRequest, response: pb.SolveResponse, seconds: float, cluster: Cluster) -> None:
    outcomes = Counter(result.outcome for result in response.results)
    placed = outcomes[pb.GroupResult.OUTCOME_PLACED]
    metrics.SOLVE_SECONDS.observe(seconds, request.groups[0].traceparent if request.groups else "")
    if slow := sum(result.out_of_time for result in response.results):
        metrics.OUT_OF_TIME.add(slow)
    for outcome, groups in outcomes.items():
        metrics.GROUPS.labels(metrics.OUTCOMES[outcome]).add(groups)
    log = _log.info if seconds > _SLOW_SECONDS else _log.debug
    log(
        "batch_solved",
        groups=len(response.results),
        placed=placed,
        milliseconds=round(seconds * 1000, 2),
        nodes=len(cluster.nodes),
        revision=cluster.revision.get("pods", 0),
    )


def _class_ids(request: SolveRequest) -> set[str]:
    """Ids of all pod classes that the request names."""
    kinds = {role.class_id for group in request.groups for gang in group.gangs for role in gang.roles}
    kinds.update(reservation.class_id for reservation in request.reservations)
    kinds.update(pods.class_id for gang in request.potential_victims for pods in gang.pods)
    return {split_kind(kind)[0] for kind in kinds}


def _check_classes(class_ids: Collection[str], known: Collection[str]) -> None:
    """All pod classes must be known. Raises RpcError FAILED_PRECONDITION."""
    unknown = [class_id for class_id in class_ids if class_id not in known]
    if unknown:
        raise RpcError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"pod class {min(unknown)!r} is unknown at this revision; request the revision of its first pod",
        )


def _check_constraints(groups: Sequence[SolveGroup], trees: Trees) -> None:
    """Trees must be known, and the constraints on them satisfiable. Raises RpcError INVALID_ARGUMENT."""
    for gang in (gang for group in groups for gang in group.gangs if gang.constraints):
        tree = trees.get(gang.tree)
        if tree is None:
            known = _known(trees.names)
            raise invalid_argument(f"gang {gang.id!r}: tree {gang.tree!r} is unknown at this revision; {known}")
        placed = sum(pods.count for pods in gang.placed)
        pods = sum(role.wanted for role in gang.roles) + placed
        problem = _first_contradiction(gang.constraints, tree.level_names, gang.minimum + placed, pods)
        if problem:
            raise invalid_argument(f"gang {gang.id!r}: {problem}")
    for group in groups:
        for composite in group.composites:
            if composite.level and (problem := _unknown_domain(composite, trees)):
                raise invalid_argument(f"group {group.id!r}: {problem}")


def _unknown_domain(composite: Composite, trees: Trees) -> str:
    tree = trees.get(composite.tree)
    if tree is None:
        return f"tree {composite.tree!r} is unknown at this revision; {_known(trees.names)}"
    if composite.level not in tree.level_names:
        return f"tree {composite.tree!r} has no level {composite.level!r}; its levels are {', '.join(tree.level_names)}"
    return ""


@cached_by_number(4096)
def _first_contradiction(
    constraints: tuple[LevelConstraint, ...], levels: tuple[str, ...], minimum: int, pods: int
) -> str:
    """Cached, because a queue often holds many gangs with the same constraints."""
    return next(iter(contradictions(constraints, levels, minimum, pods)), "")


def _known(names: Sequence[str]) -> str:
    if not names:
        return "no tree is known; leave the tree empty to place on nodes alone"
    return f"known trees: {', '.join(map(repr, names))}"
