"""Explanations: why a group is not placed, as a summary for users and with correct figures."""

from typing import Final

from muster.conformance.builders import (
    bound,
    cluster,
    gang,
    gang_group,
    node,
    nodes,
    nodes_of,
    pack,
    pod_class,
    single_gang,
    tree,
)
from muster.conformance.case import Cases, Feature
from muster.conformance.case_run import CaseRun, expect, not_placed
from muster.gangs.facts import HostPort, Taint, TaintEffect
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case
_X: Final = pod_class(1)


async def _explanation(run: CaseRun, group: pb.GangGroup) -> pb.Explanation:
    result = await run.solve_one(group)
    not_placed(result)
    expect(result.explanation.summary, "the explanation has no summary")
    return result.explanation


@_case("E01", "The summary for a group that is not placed fits into an event")
async def summary_length(run: CaseRun) -> None:
    await run.start(cluster([node("a", 2)], [_X]))
    said = (await _explanation(run, single_gang((_X, 3)))).summary
    expect(len(said) <= 1024, f"the summary has {len(said)} characters")


@_case(
    "E02",
    "The explanation states how many members fit, how many are needed, and of which gang",
    Feature.EXPLANATIONS,
)
async def members_that_fit(run: CaseRun) -> None:
    await run.start(cluster([node("a", 2), node("b", 3)], [_X]))
    explanation = await _explanation(run, gang_group(gang((_X, 2), id="fits"), gang((_X, 4), id="does not"), id="both"))
    expect(explanation.gang == "does not", f"gang {explanation.gang!r} is named")
    expect(explanation.class_id == _X.id, f"class {explanation.class_id!r} is named, its members are of {_X.id!r}")
    expect(
        (explanation.fit, explanation.needed) == (3, 4),
        f"{explanation.fit} of {explanation.needed} members fit by the explanation, but 3 of 4 do",
    )


@_case(
    "E03",
    "Filtered nodes are counted by reason, each node once, in kube-scheduler's words",
    Feature.EXPLANATIONS,
)
async def filtered_nodes(run: CaseRun) -> None:
    taint = (Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),)
    machines = [
        node("a", unschedulable=True),
        *nodes("t", 2, taints=taint),
        *nodes("s", 3, 0.5, labels={"pool": "mine"}),
        *nodes("l", 4, labels={"pool": "other"}),
    ]
    picky = pod_class(1, node_selector=(("pool", "mine"),))
    await run.start(cluster(machines, [picky]))
    explanation = await _explanation(run, single_gang((picky, 1)))
    lost = {each.reason: each.nodes for each in explanation.filtered_nodes}
    expected = {
        "node(s) were unschedulable": 1,
        "node(s) had untolerated taint {gpu: yes}": 2,
        "node(s) didn't match Pod's node affinity/selector": 4,
        "Insufficient cpu": 3,
    }
    expect(lost == expected, f"the explanation has {lost} instead of {expected}")


@_case("E04", "The resource that is short is named", Feature.EXPLANATIONS)
async def short_resource(run: CaseRun) -> None:
    greedy = pod_class(1, memory=700)
    await run.start(cluster(nodes("n", 2, 8, memory=1000), [greedy]))
    explanation = await _explanation(run, single_gang((greedy, 3)))
    short = {each.name for each in explanation.short_by}
    expect(short == {"memory"}, f"the explanation names {sorted(short)}, but only memory is short")


@_case("E05", "Host ports in use are given as the reason (P30)", Feature.HOST_PORTS, Feature.EXPLANATIONS)
async def host_ports(run: CaseRun) -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 8080),))  # noqa: S104
    await run.start(cluster(nodes("n", 2), [web], [bound(web, "n-0"), bound(web, "n-1")]))
    explanation = await _explanation(run, single_gang((web, 1)))
    reasons = [each.reason for each in explanation.filtered_nodes]
    expect(any("port" in reason for reason in reasons), f"the reasons are {reasons}")


@_case(
    "E06",
    "With constraints: the best domain, how many members fit there, and what would help (P06)",
    Feature.CONSTRAINTS,
    Feature.EXPLANATIONS,
)
async def best_domain(run: CaseRun) -> None:
    domains = {"r0": {"a": 2, "b": 3}, "r1": {"c": 2, "d": 2}}
    await run.start(cluster(nodes_of(domains), [_X], trees=[tree("rack", domains)]))
    explanation = await _explanation(run, single_gang((_X, 8), constraints=[pack("rack", hard=True)]))
    expect(
        (explanation.best_domain, explanation.best_domain_fit) == ("r0", 5),
        f"the best domain is given as {explanation.best_domain!r} with {explanation.best_domain_fit} members",
    )
    expect(
        "rack" in explanation.remedy,
        f"the remedy is {explanation.remedy!r}, but a soft rack constraint would help",
    )
