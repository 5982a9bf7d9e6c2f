"""Judges an answer to Solve: everything that no answer may ever have, whoever gives it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from muster.conformance.checker.company import why_no_order
from muster.conformance.checker.filters import why_unusable
from muster.conformance.checker.loads import Loads, Members
from muster.conformance.checker.shape import broken
from muster.conformance.world import World
from muster.gangs.facts import LevelPolicy
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.topology_codec import decode_constraint

PLACED: Final = pb.GroupResult.OUTCOME_PLACED
INFEASIBLE: Final = pb.GroupResult.OUTCOME_INFEASIBLE
NOT_FOUND: Final = pb.GroupResult.OUTCOME_NOT_FOUND
PARTIAL: Final = pb.GroupResult.OUTCOME_PARTIAL
_PLACES: Final = (PLACED, PARTIAL)
_OF_PARTS: Final = (LevelPolicy.PACK,)
"""What must hold while members are still to come; sizes that are missing something may be mended by them."""


def violations(world: World, request: pb.SolveRequest, response: pb.SolveResponse) -> list[str]:
    """Sentences about what must not be; none if all is well."""
    asked, told = [group.id for group in request.groups], [result.id for result in response.results]
    if asked != told:
        return [f"the groups were {asked}, the results are of {told}"]
    behind = [
        f"the answer is of {kind} {response.revision.kinds.get(kind, 0)}, at least {version} was asked for"
        for kind, version in request.min_revision.kinds.items()
        if response.revision.kinds.get(kind, 0) < version
    ]
    loads = Loads(world, request)
    for group, result in zip(request.groups, response.results, strict=True):
        problems = _of_group(loads, request, group, result)
        if problems:
            return [*behind, *(f"group {group.id!r}: {problem}" for problem in problems)]
    return behind


def _of_group(loads: Loads, request: pb.SolveRequest, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """Adds what the answer gives to the loads."""
    if result.outcome not in (PLACED, INFEASIBLE, NOT_FOUND, PARTIAL):
        return [f"outcome {result.outcome} is none"]
    if result.outcome == PARTIAL and not group.partial:
        return ["OUTCOME_PARTIAL, but it is to start whole or not at all"]
    if result.outcome not in _PLACES:
        return ["it is not placed, but has assignments or victims"] if result.assignments or result.victims else []
    return (
        _assignments(loads, group, result)
        or _removals(loads, request, result)
        or _places(loads, group, result)
        or _shapes(loads.world, group, result)
    )


def _assignments(loads: Loads, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """They are about this group, these nodes, and as many members as it has."""
    wanted = {(gang.id, index): role.wanted for gang in group.gangs for index, role in enumerate(gang.roles)}
    given: Counter[tuple[str, int]] = Counter()
    problems = []
    for assignment in result.assignments:
        given[assignment.gang, assignment.role] += assignment.count
        if (assignment.gang, assignment.role) not in wanted:
            problems.append(f"role {assignment.role} of gang {assignment.gang!r} was not asked for")
        if not assignment.count:
            problems.append(f"an assignment of 0 members on node {assignment.node!r}")
        if assignment.node not in loads.world.nodes:
            problems.append(f"there is no node {assignment.node!r}")
    problems += [
        f"{count} members of role {key[1]} of gang {key[0]!r} are placed, {wanted[key]} were asked for"
        for key, count in given.items()
        if count > wanted.get(key, count)
    ]
    for gang in group.gangs if result.outcome == PLACED else ():
        placed = sum(given[gang.id, index] for index in range(len(gang.roles)))
        if placed < gang.minimum:
            problems.append(f"{placed} members of gang {gang.id!r} are placed, its minimum is {gang.minimum}")
    if not given.total():
        problems.append("it is placed, but has no assignments")
    return problems


def _removals(loads: Loads, request: pb.SolveRequest, result: pb.GroupResult) -> list[str]:
    """Only what was offered, as it was offered; takes it away."""
    offered = {each.id: each for each in request.potential_victims}
    seen: set[str] = set()
    for removed in result.victims:
        if removed.id not in offered or removed.id in seen:
            return [f"{removed.id!r} was not offered for removal, or is named twice"]
        seen.add(removed.id)
        there, gone = _pods(offered[removed.id].pods), _pods(removed.pods)
        if gone - there:
            return [f"more pods of {removed.id!r} are removed than were offered: {dict(gone - there)}"]
        if removed.whole and gone != there:
            return [f"{removed.id!r} is removed whole, but {dict(there - gone)} of it stays"]
        if not removed.whole and gone.total() > offered[removed.id].spare:
            return [f"{gone.total()} pods of {removed.id!r} are removed, it can spare {offered[removed.id].spare}"]
        loads.pods -= gone
    return []


def _places(loads: Loads, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """Every member may be where it is, and there is room."""
    classes = {(gang.id, index): role.class_id for gang in group.gangs for index, role in enumerate(gang.roles)}
    added: Members = Counter()
    for assignment in result.assignments:
        added[classes[assignment.gang, assignment.role], assignment.node] += assignment.count
    problems = [
        f"node {node!r} may not be used: {reason}"
        for class_id, node in sorted(added)
        if (reason := why_unusable(loads.of_class(class_id), loads.node(node)))
    ]
    company = "" if problems else why_no_order(loads, added)
    loads.pods += added
    return problems or loads.overfull(added) or ([company] if company else [])


def _shapes(world: World, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """Hard constraints hold. What those that had a place already break is not held against the answer."""
    problems = []
    for gang in group.gangs:
        before: Counter[str] = Counter()
        for pods in gang.placed:
            if pods.node in world.nodes:
                before[pods.node] += pods.count
        after = before.copy()
        for assignment in result.assignments:
            if assignment.gang == gang.id:
                after[assignment.node] += assignment.count
        constraints = [decode_constraint(each) for each in gang.constraints]
        judged = _OF_PARTS if result.outcome == PARTIAL else tuple(LevelPolicy)
        if after == before or (before and broken(world, gang.tree, constraints, before, judged)):
            continue
        problems += [f"gang {gang.id!r}: {told}" for told in broken(world, gang.tree, constraints, after, judged)]
    return problems


def _pods(pods: Iterable[pb.PodsOnNode]) -> Members:
    found: Members = Counter()
    for each in pods:
        found[each.class_id, each.node] += each.count
    return found
