"""Placements that are wrong in one way each: first-fit with something spoiled."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
from msgspec.structs import replace

from muster.config.settings import PLAIN_TEXT
from muster.firstfit.picture import Follower, Picture
from muster.firstfit.service import FULL_NAME, FirstFit
from muster.localcluster.ports import free_port
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import open_channel
from muster.rpc.errors import RpcError
from muster.rpc.server import RpcServer
from muster.rpc.subscription import subscribe

Spoil = Callable[[pb.SolveResponse], object]
Make = Callable[[Follower], FirstFit]


class Mistaken(Follower):
    """Sees the cluster otherwise than it is."""

    def __init__(self, see: Callable[[Picture], object]) -> None:
        super().__init__()
        self._see = see

    async def at(self, revision: Any, timeout_seconds: float) -> Picture:
        picture = await super().at(revision, timeout_seconds)
        seen = Picture()
        seen.nodes, seen.pods = dict(picture.nodes), dict(picture.pods)
        seen.classes, seen.revision = dict(picture.classes), picture.revision
        self._see(seen)
        return seen


class Hasty(Follower):
    """Does not wait for what it was asked to have seen."""

    async def at(self, revision: Any, timeout_seconds: float) -> Picture:
        return await super().at({}, timeout_seconds)


class Impatient(Follower):
    """Takes the half of a snapshot for the whole."""

    async def at(self, revision: Any, timeout_seconds: float) -> Picture:
        if self._building is not None and not revision:
            return self._building
        return await super().at(revision, timeout_seconds)


class Spoiled(FirstFit):
    """Answers that are changed before they leave."""

    def __init__(self, follower: Follower, spoil: Spoil) -> None:
        super().__init__(follower)
        self._spoil = spoil

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        response = await super().Solve(request, context)
        self._spoil(response)
        return response


class Deaf(FirstFit):
    """Does not hear a part of the question."""

    def __init__(self, follower: Follower, forget: Callable[[pb.SolveRequest], object]) -> None:
        super().__init__(follower)
        self._forget = forget

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        self._forget(request)
        return await super().Solve(request, context)


class Boastful(FirstFit):
    """Says that it can do everything."""

    async def Describe(self, request: Any, context: Any) -> pb.DescribeResponse:  # noqa: N802
        answer = await super().Describe(request, context)
        answer.features.extend(number for number in pb.Feature.values() if number)
        return answer


class Silent(FirstFit):
    """Never answers."""

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        await asyncio.Event().wait()
        raise AssertionError


class Lenient(FirstFit):
    """Refuses nothing."""

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        try:
            return await super().Solve(request, context)
        except RpcError as error:
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            return pb.SolveResponse(revision=request.min_revision)


class Keeping(FirstFit):
    """Takes what it answered for decided."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(follower)
        self._nominated: list[pb.Reservation] = []

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        classes = {gang.id: gang.roles for group in request.groups for gang in group.gangs}
        request.reservations.extend(self._nominated)
        response = await super().Solve(request, context)
        for assignment in (assignment for result in response.results for assignment in result.assignments):
            uids = [f"kept-{len(self._nominated)}-{index}" for index in range(assignment.count)]
            class_id = classes[assignment.gang][assignment.role].class_id
            self._nominated.append(pb.Reservation(node=assignment.node, class_id=class_id, pod_uids=uids))
        return response


class Raising(FirstFit):
    """Falls over."""

    async def Solve(self, request: Any, context: Any) -> pb.SolveResponse:  # noqa: N802
        raise RuntimeError("as the test wants it")


# -- what is spoiled in answers


def each_assignment(change: Callable[[pb.Assignment], object]) -> Spoil:
    def spoil(response: pb.SolveResponse) -> None:
        for result in response.results:
            for assignment in result.assignments:
                change(assignment)

    return spoil


def each_result(change: Callable[[pb.GroupResult], object]) -> Spoil:
    def spoil(response: pb.SolveResponse) -> None:
        for result in response.results:
            change(result)

    return spoil


def nowhere(assignment: pb.Assignment) -> None:
    assignment.node = "nowhere"


def one_too_many(assignment: pb.Assignment) -> None:
    assignment.count += 1


def all_on_one(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.node = result.assignments[0].node


def twice(result: pb.GroupResult) -> None:
    result.assignments.extend(list(result.assignments))


def without_the_last(result: pb.GroupResult) -> None:
    if result.assignments:
        del result.assignments[-1]


def of_another(assignment: pb.Assignment) -> None:
    assignment.gang = "somebody else"


def garbage(result: pb.GroupResult) -> None:
    result.outcome = pb.GroupResult.Outcome.ValueType(99)


def partly(result: pb.GroupResult) -> None:
    if result.outcome == pb.GroupResult.OUTCOME_PLACED:
        result.outcome = pb.GroupResult.OUTCOME_PARTIAL


def removing(result: pb.GroupResult) -> None:
    if result.assignments:
        result.victims.add(id="nobody offered this", whole=True)


def backwards(response: pb.SolveResponse) -> None:
    results = list(reversed(response.results))
    del response.results[:]
    response.results.extend(results)


def at_random(result: pb.GroupResult) -> None:
    assignments = list(result.assignments)
    random.shuffle(assignments)
    del result.assignments[:]
    result.assignments.extend(assignments)


# -- what is not seen, or not heard


def no_pods(picture: Picture) -> None:
    picture.pods.clear()


def all_in_service(picture: Picture) -> None:
    for name, node in picture.nodes.items():
        picture.nodes[name] = replace(node, unschedulable=False, ready=True)


def no_taints(picture: Picture) -> None:
    for name, node in picture.nodes.items():
        picture.nodes[name] = replace(node, taints=())


def without_rules(**fields: Any) -> Callable[[Picture], None]:
    """Classes without some of their rules."""

    def see(picture: Picture) -> None:
        for id_, pod_class in picture.classes.items():
            picture.classes[id_] = replace(pod_class, **fields)

    return see


def no_cpu_asked(picture: Picture) -> None:
    for id_, pod_class in picture.classes.items():
        rest = tuple((name, amount) for name, amount in pod_class.requests if name != "memory")
        picture.classes[id_] = replace(pod_class, requests=rest)


def no_constraints(request: pb.SolveRequest) -> None:
    for group in request.groups:
        for gang in group.gangs:
            del gang.constraints[:]


def nobody_goes(follower: Follower) -> Follower:
    """Keeps the nodes of all that it ever saw."""
    ever: dict[str, Any] = {}

    def see(picture: Picture) -> None:
        ever.update(picture.nodes)
        picture.nodes.update(ever)

    return Mistaken(see)


@asynccontextmanager
async def serving(make: Make, follower: Follower, cluster_state: str) -> AsyncIterator[str]:
    """Serve one, following the cluster-state at an address; yields its own."""
    channel, address = open_channel(cluster_state), f"127.0.0.1:{free_port()}"
    server = RpcServer(address, PLAIN_TEXT, "broken")
    server.add(pb_grpc.add_PlacementServiceServicer_to_server, make(follower), FULL_NAME)
    await server.start()
    async with aclosing(subscribe(channel, "broken")) as steps:
        following = asyncio.create_task(follower.follow(steps, server.set_ready))
        try:
            yield address
        finally:
            following.cancel()
            await asyncio.wait([following])
            await server.stop(grace_seconds=0)
            await channel.close()
