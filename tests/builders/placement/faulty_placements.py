"""Faulty placements: first-fit with one fault each."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from msgspec.structs import replace

from muster.config.settings import PLAIN_TEXT
from muster.firstfit.cluster import Cluster, Follower
from muster.firstfit.service import FULL_NAME, FirstFit
from muster.localcluster.ports import free_port
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.errors import RpcError
from muster.rpc.server import RpcServer
from muster.rpc.subscription import subscribe

Alteration = Callable[[pb.SolveResponse], object]
Factory = Callable[[Follower], FirstFit]


class AlteredCluster(Follower):
    """Works on an altered copy of the cluster."""

    def __init__(self, alter: Callable[[Cluster], object]) -> None:
        super().__init__()
        self._alter = alter

    async def at(self, revision: Any, timeout_seconds: float) -> Cluster:
        cluster = await super().at(revision, timeout_seconds)
        altered = Cluster()
        altered.nodes, altered.pods = dict(cluster.nodes), dict(cluster.pods)
        altered.classes, altered.revision = dict(cluster.classes), cluster.revision
        self._alter(altered)
        return altered


class IgnoresRevision(Follower):
    """Does not wait for min_revision."""

    async def at(self, revision: Any, timeout_seconds: float) -> Cluster:
        return await super().at({}, timeout_seconds)


class UsesHalfSnapshot(Follower):
    """Uses a snapshot before it is complete."""

    async def at(self, revision: Any, timeout_seconds: float) -> Cluster:
        if self._building is not None and not revision:
            return self._building
        return await super().at(revision, timeout_seconds)


class AlteredAnswers(FirstFit):
    """Alters its answers."""

    def __init__(self, follower: Follower, alter: Alteration) -> None:
        super().__init__(follower)
        self._alter = alter

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        response = await super().Solve(request, context)
        self._alter(response)
        return response


class IgnoresFields(FirstFit):
    """Ignores fields of the request."""

    def __init__(self, follower: Follower, clear: Callable[[pb.SolveRequest], object]) -> None:
        super().__init__(follower)
        self._clear = clear

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        self._clear(request)
        return await super().Solve(request, context)


class ClaimsAllFeatures(FirstFit):
    """Claims all features."""

    async def Describe(self, request: Any, context: Any) -> pb.DescribeResponse:  # noqa: N802
        answer = await super().Describe(request, context)
        answer.features.extend(number for number in pb.Feature.values() if number)
        return answer


class NeverAnswers(FirstFit):
    """Never answers."""

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        await asyncio.Event().wait()
        raise AssertionError


class AcceptsInvalid(FirstFit):
    """Accepts invalid requests."""

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        try:
            return await super().Solve(request, context)
        except RpcError as error:
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            return pb.SolveResponse(revision=request.min_revision)


class KeepsState(FirstFit):
    """Keeps its answers as reservations."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(follower)
        self._nominated: list[pb.Reservation] = []

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        classes = {gang.id: gang.roles for group in request.groups for gang in group.gangs}
        request.reservations.extend(self._nominated)
        response = await super().Solve(request, context)
        for assignment in (assignment for result in response.results for assignment in result.assignments):
            uids = [f"state-{len(self._nominated)}-{index}" for index in range(assignment.count)]
            class_id = classes[assignment.gang][assignment.role].class_id
            self._nominated.append(pb.Reservation(node=assignment.node, class_id=class_id, pod_uids=uids))
        return response


class Raises(FirstFit):
    """Fails with an exception."""

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        raise RuntimeError("injected failure")


# -- alterations of answers


def each_assignment(change: Callable[[pb.Assignment], object]) -> Alteration:
    def alter(response: pb.SolveResponse) -> None:
        for result in response.results:
            for assignment in result.assignments:
                change(assignment)

    return alter


def each_result(change: Callable[[pb.GroupResult], object]) -> Alteration:
    def alter(response: pb.SolveResponse) -> None:
        for result in response.results:
            change(result)

    return alter


def unknown_node(assignment: pb.Assignment) -> None:
    assignment.node = "nowhere"


def one_member_too_many(assignment: pb.Assignment) -> None:
    assignment.count += 1


def all_on_one_node(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.node = result.assignments[0].node


def duplicated(result: pb.GroupResult) -> None:
    result.assignments.extend(list(result.assignments))


def one_assignment_missing(result: pb.GroupResult) -> None:
    if result.assignments:
        del result.assignments[-1]


def foreign_gang(assignment: pb.Assignment) -> None:
    assignment.gang = "another gang"


def unknown_outcome(result: pb.GroupResult) -> None:
    result.outcome = pb.GroupResult.Outcome.ValueType(99)


def unrequested_partial(result: pb.GroupResult) -> None:
    if result.outcome == pb.GroupResult.OUTCOME_PLACED:
        result.outcome = pb.GroupResult.OUTCOME_PARTIAL


def unknown_victim(result: pb.GroupResult) -> None:
    if result.assignments:
        result.victims.add(id="not a potential victim", whole=True)


def reversed_results(response: pb.SolveResponse) -> None:
    results = list(reversed(response.results))
    del response.results[:]
    response.results.extend(results)


def random_order(result: pb.GroupResult) -> None:
    assignments = list(result.assignments)
    random.shuffle(assignments)
    del result.assignments[:]
    result.assignments.extend(assignments)


# -- alterations of the cluster and of requests


def no_pods(cluster: Cluster) -> None:
    cluster.pods.clear()


def all_ready(cluster: Cluster) -> None:
    for name, node in cluster.nodes.items():
        cluster.nodes[name] = replace(node, unschedulable=False, ready=True)


def no_taints(cluster: Cluster) -> None:
    for name, node in cluster.nodes.items():
        cluster.nodes[name] = replace(node, taints=())


def without_rules(**fields: Any) -> Callable[[Cluster], None]:
    """Drops some fields of all classes."""

    def alter(cluster: Cluster) -> None:
        for id_, pod_class in cluster.classes.items():
            cluster.classes[id_] = replace(pod_class, **fields)

    return alter


def no_memory_requested(cluster: Cluster) -> None:
    for id_, pod_class in cluster.classes.items():
        rest = tuple((name, amount) for name, amount in pod_class.requests if name != "memory")
        cluster.classes[id_] = replace(pod_class, requests=rest)


def no_constraints(request: pb.SolveRequest) -> None:
    for group in request.groups:
        for gang in group.gangs:
            del gang.constraints[:]


def keeps_removed_nodes(follower: Follower) -> Follower:
    """Keeps all nodes it has ever seen."""
    ever: dict[str, Any] = {}

    def alter(cluster: Cluster) -> None:
        ever.update(cluster.nodes)
        cluster.nodes.update(ever)

    return AlteredCluster(alter)


@asynccontextmanager
async def serving(factory: Factory, follower: Follower, cluster_state: str) -> AsyncIterator[str]:
    """Serve a faulty placement that follows cluster-state at an address; yields its own address."""
    channel, address = open_channel(cluster_state), f"127.0.0.1:{free_port()}"
    server = RpcServer(address, PLAIN_TEXT, "faulty")
    server.add(pb_grpc.add_PlacementServiceServicer_to_server, factory(follower), FULL_NAME)
    await server.start()
    async with aclosing(subscribe(channel, "faulty")) as steps:
        following = asyncio.create_task(follower.follow(steps, server.set_ready))
        try:
            yield address
        finally:
            following.cancel()
            await asyncio.wait([following])
            await server.stop(grace_seconds=0)
            await channel.close()
