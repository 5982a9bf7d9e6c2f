"""Solve requests and responses as messages of muster.placement.v1 and back.

The coordinator encodes requests and decodes responses; placement decodes requests, which validates them, and encodes
responses.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import grpc

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.gangs.facts import kind_id, split_kind
from muster.gangs.quantity import MAX_AMOUNT
from muster.gangs.solve import (
    Assignment,
    Composite,
    Explanation,
    NominatedCapacity,
    PodsOnNode,
    PotentialVictim,
    Reservation,
    Role,
    SolveGang,
    SolveGroup,
    SolveOutcome,
    SolveRequest,
    SolveResult,
    VictimGang,
    children_of,
)
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.errors import RpcError
from muster.rpc.pod_class_codec import decode_amounts, encode_amounts
from muster.rpc.topology_codec import UnknownPolicy, decode_constraint, encode_constraint

_MAX_TEXT_LENGTH: Final = 1024
"""Any implementation of placement may have written the text; a condition or an event cannot hold more."""


# -- requests


def encode_solve_request(request: SolveRequest, traceparents: Mapping[str, str]) -> pb.SolveRequest:
    """A request as a message; `traceparents` by group id."""
    return pb.SolveRequest(
        min_revision=state_pb.Revision(kinds=request.min_revision),
        reservations=[_encode_reservation(each) for each in request.reservations],
        groups=[
            pb.GangGroup(
                id=group.id,
                traceparent=traceparents.get(group.id, ""),
                partial=group.partial,
                gangs=map(_encode_gang, group.gangs),
                composites=map(_encode_composite, group.composites),
            )
            for group in request.groups
        ],
        nominated=[
            pb.NominatedCapacity(node=each.node, amounts=encode_amounts(each.amounts)) for each in request.nominated
        ],
        potential_victims=[
            pb.PotentialVictim(
                id=gang.id,
                level=gang.level,
                spare=gang.spare,
                pods=map(_encode_pods, gang.pods),
                spare_entries=gang.spare_entries,
            )
            for gang in request.potential_victims
        ],
    )


def decode_solve_request(message: pb.SolveRequest) -> SolveRequest:
    """The validated request that a message carries. Raises RpcError INVALID_ARGUMENT."""
    groups = tuple(
        SolveGroup(
            group.id,
            tuple(map(_decode_gang, group.gangs)),
            group.partial,
            tuple(map(_decode_composite, group.composites)),
        )
        for group in message.groups
    )
    _check_unique("group", [group.id for group in groups])
    _check_unique("gang", [gang.id for group in groups for gang in group.gangs])
    for group in groups:
        if not group.gangs:
            raise invalid_argument(f"group {group.id!r} has no gangs; list the gangs to place together")
        for gang in group.gangs:
            _check_gang(gang)
        _check_composites(group)
    _check_unique("reserved pod", list(chain.from_iterable(each.pod_uids for each in message.reservations)))
    return SolveRequest(
        dict(message.min_revision.kinds),
        tuple(
            Reservation(each.node, kind_id(each.class_id, each.label_set), tuple(each.pod_uids))
            for each in message.reservations
        ),
        groups,
        tuple(map(_decode_nominated, message.nominated)),
        _decode_potential_victims(message),
    )


def _encode_gang(gang: SolveGang) -> pb.Gang:
    return pb.Gang(
        id=gang.id,
        minimum=gang.minimum,
        roles=map(_encode_role, gang.roles),
        tree=gang.tree,
        constraints=map(encode_constraint, gang.constraints),
        placed=map(_encode_pods, gang.placed),
        avoided=gang.avoided,
        composite=gang.composite + 1,
    )


def _encode_composite(composite: Composite) -> pb.Composite:
    return pb.Composite(
        parent=composite.parent + 1,
        minimum=composite.minimum,
        minimum_members=composite.minimum_members,
        level=composite.level,
        tree=composite.tree,
        placed=composite.placed,
    )


def _encode_role(role: Role) -> pb.Role:
    class_id, label_set = split_kind(role.class_id)
    return pb.Role(class_id=class_id, wanted=role.wanted, label_set=label_set)


def _encode_reservation(reservation: Reservation) -> pb.Reservation:
    class_id, label_set = split_kind(reservation.class_id)
    return pb.Reservation(node=reservation.node, class_id=class_id, pod_uids=reservation.pod_uids, label_set=label_set)


def _decode_gang(message: pb.Gang) -> SolveGang:
    try:
        constraints = tuple(map(decode_constraint, message.constraints))
    except UnknownPolicy as error:
        raise invalid_argument(f"gang {message.id!r}: {error}") from None
    return SolveGang(
        message.id,
        message.minimum,
        tuple(Role(kind_id(role.class_id, role.label_set), role.wanted) for role in message.roles),
        message.tree,
        constraints,
        tuple(_decode_pods(pods) for pods in message.placed if pods.count),
        tuple(message.avoided),
        message.composite - 1,
    )


def _decode_composite(message: pb.Composite) -> Composite:
    return Composite(
        message.minimum,
        message.parent - 1,
        message.minimum_members,
        message.level,
        message.tree,
        tuple(message.placed),
    )


def _check_composites(group: SolveGroup) -> None:
    if group.partial and group.composites:
        raise invalid_argument(f"group {group.id!r} is partial and has composites; ask for one of them")
    for gang in group.gangs:
        if gang.composite >= len(group.composites):
            raise invalid_argument(
                f"gang {gang.id!r}: composite {gang.composite + 1} does not exist; the group has "
                f"{len(group.composites)}"
            )
    for index, each in enumerate(group.composites):
        if each.parent >= index:
            raise invalid_argument(
                f"group {group.id!r}: composite {index + 1} has parent {each.parent + 1}; list parents before their "
                "children"
            )
    with_gangs = {gang.composite for gang in group.gangs}
    for index, each in reversed(list(enumerate(group.composites))):
        if index not in with_gangs:
            raise invalid_argument(f"group {group.id!r}: composite {index + 1} has no gangs; leave it out")
        with_gangs.add(each.parent)
    for index, (each, children) in enumerate(zip(group.composites, children_of(group), strict=True)):
        if each.minimum > children:
            raise invalid_argument(
                f"group {group.id!r}: composite {index + 1} needs {each.minimum} of {children} children; lower its "
                "minimum"
            )


def _check_gang(gang: SolveGang) -> None:
    wanted = sum(role.wanted for role in gang.roles)
    for index, role in enumerate(gang.roles):
        if not role.wanted:
            raise invalid_argument(
                f"gang {gang.id!r}: role {index} wants 0 members; leave it out or ask for at least 1"
            )
    if not wanted:
        raise invalid_argument(f"gang {gang.id!r} has no members; give it at least one role")
    if not 1 <= gang.minimum <= wanted:
        raise invalid_argument(
            f"gang {gang.id!r}: minimum {gang.minimum} is out of range; it wants {wanted} members, "
            f"so the minimum is from 1 to {wanted}"
        )


def _decode_nominated(message: pb.NominatedCapacity) -> NominatedCapacity:
    for each in message.amounts:
        if not 0 <= each.amount <= MAX_AMOUNT:
            raise invalid_argument(
                f"{each.amount} of {each.name!r} cannot be nominated on node {message.node!r}; "
                f"name an amount from 0 to {MAX_AMOUNT}"
            )
    return NominatedCapacity(message.node, decode_amounts(message.amounts))


def _decode_potential_victims(message: pb.SolveRequest) -> tuple[PotentialVictim, ...]:
    if message.potential_victims and len(message.groups) > 1:
        raise invalid_argument(
            f"{len(message.groups)} groups, but potential victims are supported for one; send one group per request"
        )
    _check_unique("potential victim", [gang.id for gang in message.potential_victims])
    return tuple(_decode_potential_victim(gang) for gang in message.potential_victims)


def _decode_potential_victim(gang: pb.PotentialVictim) -> PotentialVictim:
    pods = tuple(_decode_pods(pods) for pods in gang.pods if pods.count)
    spare_entries = gang.spare_entries
    if spare_entries and len(pods) < len(gang.pods):  # entries without pods are left out
        spare_entries = sum(1 for each in gang.pods[:spare_entries] if each.count)
    return PotentialVictim(
        gang.id, gang.level, gang.spare if spare_entries or not gang.spare_entries else 0, pods, spare_entries
    )


def _check_unique(kind: str, ids: Sequence[str]) -> None:
    if len(set(ids)) != len(ids):
        duplicate = next(name for name, count in Counter(ids).items() if count > 1)
        raise invalid_argument(f"{kind} {duplicate!r} is listed twice; list each once")
    if "" in ids:
        raise invalid_argument(f"a {kind} has an empty id; give each a unique id")


def invalid_argument(message: str) -> RpcError:
    """The error for a request that no implementation could answer."""
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, message)


# -- responses


def encode_solve_result(result: SolveResult, message: pb.GroupResult) -> None:
    """Write a result into an empty message."""
    outcome: Any = result.outcome
    message.id = result.id
    message.outcome = outcome
    message.out_of_time = result.out_of_time
    add_assignment = message.assignments.add
    for each in result.assignments:
        add_assignment(gang=each.gang, role=each.role, node=each.node, count=each.count)
    for gang in result.victims:
        message.victims.add(id=gang.id, whole=gang.whole, pods=map(_encode_pods, gang.pods))
    if result.explanation is not None:
        message.explanation.CopyFrom(encode_explanation(result.explanation))


def decode_solve_results(messages: Iterable[pb.GroupResult]) -> tuple[SolveResult, ...]:
    """The results that messages carry. Raises ValueError for an outcome that the contract does not have."""
    return tuple(
        SolveResult(
            message.id,
            SolveOutcome(message.outcome),
            tuple(Assignment(each.gang, each.role, each.node, each.count) for each in message.assignments),
            decode_explanation(message.explanation) if message.HasField("explanation") else None,
            tuple(VictimGang(gang.id, gang.whole, tuple(map(_decode_pods, gang.pods))) for gang in message.victims),
            message.out_of_time,
        )
        for message in messages
    )


def encode_explanation(explanation: Explanation) -> pb.Explanation:
    """An explanation as a message."""
    return pb.Explanation(
        summary=explanation.summary,
        gang=explanation.gang,
        class_id=split_kind(explanation.class_id)[0],
        fit=explanation.fit,
        needed=explanation.needed,
        filtered_nodes=[pb.FilteredNodes(reason=reason, nodes=nodes) for reason, nodes in explanation.filtered_nodes],
        short_by=encode_amounts(explanation.short_by),
        best_domain=explanation.best_domain,
        best_domain_fit=explanation.best_domain_fit,
        remedy=explanation.remedy,
        only_constraints=explanation.only_constraints,
    )


def decode_explanation(message: pb.Explanation) -> Explanation:
    """The explanation that a message carries; sentences that are too long are cut."""
    return Explanation(
        summary=message.summary[:_MAX_TEXT_LENGTH],
        gang=message.gang,
        class_id=message.class_id,
        fit=message.fit,
        needed=message.needed,
        filtered_nodes=tuple((each.reason, each.nodes) for each in message.filtered_nodes),
        short_by=decode_amounts(message.short_by),
        best_domain=message.best_domain[:_MAX_TEXT_LENGTH],
        best_domain_fit=message.best_domain_fit,
        remedy=message.remedy[:_MAX_TEXT_LENGTH],
        only_constraints=message.only_constraints,
    )


def _encode_pods(pods: PodsOnNode) -> pb.PodsOnNode:
    class_id, label_set = split_kind(pods.class_id)
    return pb.PodsOnNode(node=pods.node, class_id=class_id, count=pods.count, label_set=label_set)


def _decode_pods(message: pb.PodsOnNode) -> PodsOnNode:
    return PodsOnNode(message.node, kind_id(message.class_id, message.label_set), message.count)
