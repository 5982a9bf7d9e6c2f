"""Faults of placement: each changes a correct answer into a wrong one."""

from collections.abc import Callable

from builders.e2e.solve_relay import Fault
from muster.placement.v1 import placement_pb2 as pb

PLACED = pb.GroupResult.OUTCOME_PLACED


def change_placed(change: Callable[[pb.GroupResult], object]) -> Fault:
    """Change the results of placed groups."""

    def fault(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for result in response.results:
            if result.outcome == PLACED:
                change(result)
        return True

    return fault


def no_results(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
    """No results."""
    del response.results[:]
    return True


def results_twice(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
    """Every result twice."""
    response.results.extend(list(response.results))
    return True


def no_revision(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
    """No revision."""
    response.ClearField("revision")
    return True


def no_answer(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
    """No answer."""
    return False


def all_on(node: str) -> Fault:
    """All members on one node."""

    def fault(request: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for group, result in zip(request.groups, response.results, strict=True):
            result.CopyFrom(pb.GroupResult(id=group.id, outcome=PLACED))
            for gang in group.gangs:
                for index, role in enumerate(gang.roles):
                    result.assignments.add(gang=gang.id, role=index, node=node, count=role.wanted)
        return True

    return fault


def spread_over(*nodes: str) -> Fault:
    """The members of every role on different nodes, one each."""

    def fault(request: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for group, result in zip(request.groups, response.results, strict=True):
            result.CopyFrom(pb.GroupResult(id=group.id, outcome=PLACED))
            for gang in group.gangs:
                for index, role in enumerate(gang.roles):
                    for member in range(role.wanted):
                        result.assignments.add(gang=gang.id, role=index, node=nodes[member % len(nodes)], count=1)
        return True

    return fault


def duplicated(result: pb.GroupResult) -> None:
    """Every pod twice."""
    result.assignments.extend(list(result.assignments))


def one_member_missing(result: pb.GroupResult) -> None:
    """One pod less than the minimum."""
    result.assignments[-1].count -= 1
    if not result.assignments[-1].count:
        del result.assignments[-1]


def no_assignments(result: pb.GroupResult) -> None:
    """Placed, without assignments."""
    del result.assignments[:]


def empty_assignments(result: pb.GroupResult) -> None:
    """Assignments of zero members."""
    for assignment in result.assignments:
        assignment.count = 0


def of_another_gang(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.gang = "koordinator/nowhere/nobody"


def of_another_role(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.role += 7


def unknown_outcome(result: pb.GroupResult) -> None:
    result.outcome = pb.GroupResult.Outcome.ValueType(99)


def of_another_group(result: pb.GroupResult) -> None:
    result.id = "koordinator/nowhere/nobody"


def unrequested_partial(result: pb.GroupResult) -> None:
    """Partial, though the group does not allow it."""
    result.outcome = pb.GroupResult.OUTCOME_PARTIAL
    one_member_missing(result)


def oversized_count(result: pb.GroupResult) -> None:
    for assignment in result.assignments:
        assignment.count = 2**32 - 1


def unknown_victim(gang: str) -> Fault:
    """A victim that is not a potential victim."""

    def fault(_: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for result in response.results:
            for removed in result.victims:
                removed.id = gang
        return True

    return fault


def needless_victim(gang: str, node: str) -> Fault:
    """A victim for a group that fits without preemption."""

    def fault(request: pb.SolveRequest, response: pb.SolveResponse) -> bool:
        for group, result in zip(request.groups, response.results, strict=True):
            if result.outcome == PLACED:
                removed = result.victims.add(id=gang, whole=True)
                removed.pods.add(node=node, class_id=group.gangs[0].roles[0].class_id, count=1)
        return True

    return fault
