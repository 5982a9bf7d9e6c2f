"""Optional features of placement: groups that need one that an implementation does not declare are not sent to it."""

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

import grpc
from grpc import aio

from muster.gangs.facts import PodClass
from muster.gangs.quoting import printable
from muster.gangs.solve import Explanation, SolveGroup, SolveOutcome, SolveResult
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc

DESCRIBE_SECONDS: Final = 2.0
"""Timeout of Describe, which needs no solve."""
_MAX_NAME_LENGTH: Final = 64

ClassOf = Callable[[str], PodClass | None]
"""The pod class of a kind of pods, if it is known."""


class Declared(NamedTuple):
    """What an implementation declares of itself."""

    implementation: str
    features: frozenset[int]


async def describe_placement(stub: "pb_grpc.PlacementServiceAsyncStub") -> Declared | None:
    """What the implementation declares; None: it does not say. Raises AioRpcError UNAVAILABLE."""
    try:
        answer: pb.DescribeResponse | None = await stub.Describe(pb.DescribeRequest(), timeout=DESCRIBE_SECONDS)
    except aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            raise
        return None
    if answer is None:  # gRPC returns None for bytes that are not such a message
        return None
    return Declared(printable(answer.implementation[:_MAX_NAME_LENGTH]), frozenset(answer.features))


def unsupported(declared: Declared, groups: Iterable[SolveGroup], class_of: ClassOf) -> list[SolveResult]:
    """Results for the groups that this implementation may not be sent, which say why."""
    found = []
    for group in groups:
        if missing := _missing(group, declared.features, class_of):
            name = declared.implementation or "this placement"
            summary = f"{name} does not support {missing}; use another placement for it"
            explanation = Explanation(summary, gang=group.gangs[0].id if group.gangs else "")
            found.append(SolveResult(group.id, SolveOutcome.NOT_FOUND, explanation=explanation))
    return found


def _missing(group: SolveGroup, features: Collection[int], class_of: ClassOf) -> str:
    """What the group needs and the features lack; empty: nothing."""
    if group.composites and pb.FEATURE_COMPOSITES not in features:
        return "composites (FEATURE_COMPOSITES)"
    if pb.FEATURE_CONSTRAINTS not in features and any(each.hard for gang in group.gangs for each in gang.constraints):
        return "hard topology constraints (FEATURE_CONSTRAINTS)"
    if pb.FEATURE_POD_TOPOLOGY not in features:
        for role in (role for gang in group.gangs for role in gang.roles):
            pod_class = class_of(role.class_id)
            if pod_class is not None and pod_class.required_pod_affinity:
                return "required pod affinity (FEATURE_POD_TOPOLOGY)"
            if pod_class is not None and any(spread.hard for spread in pod_class.spread):
                return "topologySpreadConstraints with DoNotSchedule (FEATURE_POD_TOPOLOGY)"
    return ""
