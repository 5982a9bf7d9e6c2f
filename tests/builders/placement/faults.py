"""What a placement that lies may say: each changes an honest answer."""

from collections.abc import Callable

from builders.e2e.solve_relay import Lie
from muster.placement.v1 import placement_pb2 as pb

PLACED = pb.GroupResult.OUTCOME_PLACED


def of_places(change: Callable[[pb.GroupResult], object]) -> Lie:
    """Change what is told of groups that have a place."""

    def lie(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for result in response.results:
            if result.outcome == PLACED:
                change(result)
        return True

    return lie


def nothing_at_all(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
    """No results."""
    del response.results[:]
    return True


def silence(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
    """No answer."""
    return False


def all_on(node: str) -> Lie:
    """Everybody on one node, whoever asked."""

    def lie(request: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for group, result in zip(request.groups, response.results, strict=True):
            result.CopyFrom(pb.GroupResult(id=group.id, outcome=PLACED))
            for gang in group.gangs:
                for index, role in enumerate(gang.roles):
                    result.assignments.add(gang=gang.id, role=index, node=node, count=role.wanted)
        return True

    return lie


def divided_over(*nodes: str) -> Lie:
    """The members of every role in turn, one on each node."""

    def lie(request: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for group, result in zip(request.groups, response.results, strict=True):
            result.CopyFrom(pb.GroupResult(id=group.id, outcome=PLACED))
            for gang in group.gangs:
                for index, role in enumerate(gang.roles):
                    for member in range(role.wanted):
                        result.assignments.add(gang=gang.id, role=index, node=nodes[member % len(nodes)], count=1)
        return True

    return lie


def twice(result: pb.GroupResult) -> None:
    """Every pod two times."""
    result.assignments.extend(list(result.assignments))


def a_part(result: pb.GroupResult) -> None:
    """One pod less than there must be."""
    result.assignments[-1].count -= 1
    if not result.assignments[-1].count:
        del result.assignments[-1]


def nobody(result: pb.GroupResult) -> None:
    """Placed, but nowhere."""
    del result.assignments[:]


def empty_assignments(result: pb.GroupResult) -> None:
    """So many times none."""
    for assignment in result.assignments:
        assignment.count = 0


def of_another_gang(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.gang = "koordinator/nowhere/nobody"


def of_another_role(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.role += 7


def an_outcome_that_is_none(result: pb.GroupResult) -> None:
    result.outcome = pb.GroupResult.Outcome.ValueType(99)


def of_another_group(result: pb.GroupResult) -> None:
    result.id = "koordinator/nowhere/nobody"


def in_part(result: pb.GroupResult) -> None:
    """As if the group might start with less."""
    result.outcome = pb.GroupResult.OUTCOME_PARTIAL
    a_part(result)


def far_too_many(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.count = 2**32 - 1


def removing_another(gang: str) -> Lie:
    """Who is to make room is somebody else, who was not offered."""

    def lie(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for result in response.results:
            for removed in result.victims:
                removed.id = gang
        return True

    return lie


def removing_without_need(gang: str, node: str) -> Lie:
    """Somebody has to go for a group that has a place."""

    def lie(request: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for group, result in zip(request.groups, response.results, strict=True):
            if result.outcome == PLACED:
                removed = result.victims.add(id=gang, whole=True)
                removed.pods.add(node=node, class_id=group.gangs[0].roles[0].class_id, count=1)
        return True

    return lie
