"""Checks the fields of placement's answers against the request. A result with an invalid field is replaced by one that
names the field: the coordinator rejects it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from muster.gangs.quoting import quoted
from muster.gangs.solve import PodsOnNode, PotentialVictim, SolveGroup, SolveOutcome, SolveRequest, SolveResult

_WITH_ASSIGNMENTS = (SolveOutcome.PLACED, SolveOutcome.PARTIAL)


def checked(
    request: SolveRequest, results: Sequence[SolveResult], revision: Mapping[str, int]
) -> tuple[SolveResult, ...]:
    """One result per group that has any, without those that have an invalid field. `revision`: that of the answer."""
    groups = {group.id: group for group in request.groups}
    offered = {victim.id: victim for victim in request.potential_victims}
    outdated = next(_outdated(request.min_revision, revision), "")
    listed = Counter(result.id for result in results)
    found = {}
    for result in results:
        if result.id not in groups:
            continue
        twice = "results: the group is listed twice" if listed[result.id] > 1 else ""
        invalid = outdated or twice or next(_invalid(groups[result.id], offered, result), "")
        found[result.id] = SolveResult(result.id, SolveOutcome.NOT_FOUND, invalid=invalid) if invalid else result
    return tuple(found.values())


def _outdated(wanted: Mapping[str, int], revision: Mapping[str, int]) -> Iterator[str]:
    for kind, version in wanted.items():
        if kind not in revision:
            yield f"revision: it states none for {kind}, and at least {version} was requested"
        elif revision[kind] < version:
            yield f"revision: it is based on {kind} {revision[kind]}, and at least {version} was requested"


def _invalid(group: SolveGroup, offered: Mapping[str, PotentialVictim], result: SolveResult) -> Iterator[str]:
    outcome = f"OUTCOME_{result.outcome.name}"
    if result.outcome is SolveOutcome.PARTIAL and not group.partial:
        yield f"outcome: it is {outcome}, and the group is not partial"
    if result.out_of_time and result.outcome is not SolveOutcome.NOT_FOUND:
        yield f"out_of_time: it is set, and the outcome is {outcome}"
    if result.outcome not in _WITH_ASSIGNMENTS:
        for field, entries in (("assignments", result.assignments), ("victims", result.victims)):
            if entries:
                yield f"{field}: {len(entries)} are listed, and the outcome is {outcome}"
    listed = Counter(victim.id for victim in result.victims)
    for victim in result.victims:
        if victim.id not in offered:
            yield f"victims: gang {quoted(victim.id)} is not among the potential victims of the request"
        elif listed[victim.id] > 1:
            yield f"victims: gang {quoted(victim.id)} is listed twice"
        else:
            there = _pods(offered[victim.id].pods)
            for (node, class_id), count in _pods(victim.pods).items():
                if count > there[node, class_id]:
                    yield (
                        f"victims: {count} pods of gang {quoted(victim.id)} on node {quoted(node)} are listed, "
                        f"{there[node, class_id]} are potential victims"
                    )


def _pods(pods: Iterable[PodsOnNode]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for each in pods:
        found[each.node, each.class_id] += each.count
    return found
