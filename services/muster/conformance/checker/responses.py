"""Checks a solve response for everything that makes an answer unsafe or malformed."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from muster.conformance.checker.composites import gangs_that_may_be_missing, violated_composites
from muster.conformance.checker.filters import filter_reason
from muster.conformance.checker.inter_pod_rules import inter_pod_violation
from muster.conformance.checker.node_usage import Members, NodeUsage
from muster.conformance.checker.topology import violated_constraints
from muster.conformance.cluster import Cluster
from muster.gangs.facts import LevelPolicy
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.topology_codec import decode_constraint

PLACED: Final = pb.GroupResult.OUTCOME_PLACED
INFEASIBLE: Final = pb.GroupResult.OUTCOME_INFEASIBLE
NOT_FOUND: Final = pb.GroupResult.OUTCOME_NOT_FOUND
PARTIAL: Final = pb.GroupResult.OUTCOME_PARTIAL
_WITH_ASSIGNMENTS: Final = (PLACED, PARTIAL)
_CHECKED_IF_PARTIAL: Final = (LevelPolicy.PACK,)
"""Policies checked for partial answers: later members may still correct sizes."""


def violations(cluster: Cluster, request: pb.SolveRequest, response: pb.SolveResponse) -> list[str]:
    """Violations, one sentence each; empty for a correct answer."""
    requested, answered = [group.id for group in request.groups], [result.id for result in response.results]
    if requested != answered:
        return [f"the groups of the request are {requested}, those of the answer {answered}"]
    behind = [
        f"the answer is based on {kind} {response.revision.kinds.get(kind, 0)}, min_revision is {version}"
        for kind, version in request.min_revision.kinds.items()
        if response.revision.kinds.get(kind, 0) < version
    ]
    usage = NodeUsage(cluster, request)
    for group, result in zip(request.groups, response.results, strict=True):
        problems = _group_violations(usage, request, group, result)
        if problems:
            return [*behind, *(f"group {group.id!r}: {problem}" for problem in problems)]
    return behind


def _group_violations(
    usage: NodeUsage, request: pb.SolveRequest, group: pb.GangGroup, result: pb.GroupResult
) -> list[str]:
    """Also adds the assignments to the usage."""
    if result.outcome not in (PLACED, INFEASIBLE, NOT_FOUND, PARTIAL):
        return [f"outcome {result.outcome} is unknown"]
    if result.out_of_time and result.outcome != NOT_FOUND:
        return ["out_of_time, but the outcome is not OUTCOME_NOT_FOUND"]
    if result.outcome == PARTIAL and not group.partial:
        return ["OUTCOME_PARTIAL, but the group does not allow partial placement"]
    if result.outcome not in _WITH_ASSIGNMENTS:
        return (
            ["the group is not placed, but has assignments or victims"] if result.assignments or result.victims else []
        )
    return (
        _assignments(usage, group, result)
        or _victims(usage, request, result)
        or _nodes(usage, group, result)
        or _topology(usage.cluster, group, result)
        or violated_composites(usage.cluster, group, result)
    )


def _assignments(usage: NodeUsage, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """Checks that assignments name roles of the group, existing nodes, and no more members than wanted."""
    wanted = {(gang.id, index): role.wanted for gang in group.gangs for index, role in enumerate(gang.roles)}
    given: Counter[tuple[str, int]] = Counter()
    problems = []
    for assignment in result.assignments:
        given[assignment.gang, assignment.role] += assignment.count
        if (assignment.gang, assignment.role) not in wanted:
            problems.append(f"role {assignment.role} of gang {assignment.gang!r} is not in the request")
        if not assignment.count:
            problems.append(f"an assignment of 0 members on node {assignment.node!r}")
        if assignment.node not in usage.cluster.nodes:
            problems.append(f"node {assignment.node!r} does not exist")
    problems += [
        f"{count} members of role {key[1]} of gang {key[0]!r} are placed, but it wants {wanted[key]}"
        for key, count in given.items()
        if count > wanted.get(key, count)
    ]
    optional = gangs_that_may_be_missing(group)
    for gang in group.gangs if result.outcome == PLACED else ():
        placed = sum(given[gang.id, index] for index in range(len(gang.roles)))
        if placed < gang.minimum and (placed or gang.id not in optional):
            problems.append(f"{placed} members of gang {gang.id!r} are placed, but its minimum is {gang.minimum}")
    if not given.total():
        problems.append("the group is placed, but has no assignments")
    return problems


def _victims(usage: NodeUsage, request: pb.SolveRequest, result: pb.GroupResult) -> list[str]:
    """Victims are potential victims, within their limits; removes them from the usage."""
    offered = {each.id: each for each in request.potential_victims}
    seen: set[str] = set()
    for removed in result.victims:
        if removed.id not in offered or removed.id in seen:
            return [f"{removed.id!r} is not a potential victim, or is listed twice"]
        seen.add(removed.id)
        there, evicted = _pods(offered[removed.id].pods), _pods(removed.pods)
        if evicted - there:
            return [f"victims of {removed.id!r} are not potential victims: {dict(evicted - there)}"]
        if removed.whole and evicted != there:
            return [f"{removed.id!r} is evicted whole, but these pods are not: {dict(there - evicted)}"]
        if not removed.whole and evicted.total() > offered[removed.id].spare:
            return [
                f"{evicted.total()} pods of {removed.id!r} are evicted, but it can spare {offered[removed.id].spare}"
            ]
        limited = offered[removed.id].spare_entries
        singly = _pods(offered[removed.id].pods[: limited or None])
        if not removed.whole and evicted - singly:
            return [f"pods of {removed.id!r} are evicted that may not be evicted one by one: {dict(evicted - singly)}"]
        usage.pods -= evicted
    return []


def _nodes(usage: NodeUsage, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """Every member is on a node that accepts it, and no node is oversubscribed."""
    classes = {(gang.id, index): role.class_id for gang in group.gangs for index, role in enumerate(gang.roles)}
    added: Members = Counter()
    for assignment in result.assignments:
        added[classes[assignment.gang, assignment.role], assignment.node] += assignment.count
    problems = [
        f"node {node!r} rejects its members: {reason}"
        for class_id, node in sorted(added)
        if (reason := filter_reason(usage.of_class(class_id), usage.node(node)))
    ]
    violation = "" if problems else inter_pod_violation(usage, added)
    usage.pods += added
    return problems or usage.oversubscribed(added) or ([violation] if violation else [])


def _topology(cluster: Cluster, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """Hard constraints are satisfied, unless members placed before the solve already violated them."""
    problems = []
    for gang in group.gangs:
        before: Counter[str] = Counter()
        for pods in gang.placed:
            if pods.node in cluster.nodes:
                before[pods.node] += pods.count
        after = before.copy()
        for assignment in result.assignments:
            if assignment.gang == gang.id:
                after[assignment.node] += assignment.count
        constraints = [decode_constraint(each) for each in gang.constraints]
        judged = _CHECKED_IF_PARTIAL if result.outcome == PARTIAL else tuple(LevelPolicy)
        if after == before or (before and violated_constraints(cluster, gang.tree, constraints, before, judged)):
            continue
        problems += [
            f"gang {gang.id!r}: {violation}"
            for violation in violated_constraints(cluster, gang.tree, constraints, after, judged)
        ]
    return problems


def _pods(pods: Iterable[pb.PodsOnNode]) -> Members:
    found: Members = Counter()
    for each in pods:
        found[each.class_id, each.node] += each.count
    return found
