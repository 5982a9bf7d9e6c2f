"""Validates solve requests; error messages quote the invalid value."""

from collections import Counter
from collections.abc import Iterable, Mapping

import grpc

from muster.gangs.facts import PodClass
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.errors import RpcError


def validate(request: pb.SolveRequest) -> None:
    """Raises RpcError INVALID_ARGUMENT."""
    gangs = [gang for group in request.groups for gang in group.gangs]
    _check_ids("group", (group.id for group in request.groups))
    _check_ids("gang", (gang.id for gang in gangs))
    _check_ids("potential victim", (gang.id for gang in request.potential_victims))
    _check_ids("reserved pod", (uid for held in request.reservations for uid in held.pod_uids))
    for group in request.groups:
        if not group.gangs:
            raise _invalid(f"group {group.id!r} has no gangs")
    for gang in gangs:
        wanted = sum(role.wanted for role in gang.roles)
        if not all(role.wanted for role in gang.roles) or not 1 <= gang.minimum <= wanted:
            raise _invalid(
                f"gang {gang.id!r} has minimum {gang.minimum} and wants {[role.wanted for role in gang.roles]}; "
                "every role must want at least 1, and the minimum must be from 1 to the sum"
            )
    if request.potential_victims and len(request.groups) > 1:
        raise _invalid(f"{len(request.groups)} groups with potential victims; only a single group may have them")
    for nominated in request.nominated:
        for each in nominated.amounts:
            if each.amount < 0:
                raise _invalid(f"{each.amount} of {each.name!r} cannot be nominated on node {nominated.node!r}")


def validate_classes(request: pb.SolveRequest, classes: Mapping[str, PodClass]) -> None:
    """Raises RpcError FAILED_PRECONDITION for an unknown class."""
    named = {role.class_id for group in request.groups for gang in group.gangs for role in gang.roles}
    named.update(held.class_id for held in request.reservations)
    unknown = sorted(named - classes.keys())
    if unknown:
        raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, f"pod class {unknown[0]!r} is unknown at this revision")


def _check_ids(what: str, ids: Iterable[str]) -> None:
    for name, times in Counter(ids).items():
        if not name or times > 1:
            raise _invalid(f"{what} {name!r} is listed {times} times; ids must be unique and not empty")


def _invalid(message: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, message)
