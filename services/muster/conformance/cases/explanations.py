"""Explanations: why a group has no place, in words for the user and figures that are right."""

from typing import Final

from muster.conformance.building import (
    alone,
    bound,
    gang,
    node,
    nodes,
    nodes_of,
    pack,
    pod_class,
    together,
    tree,
    world,
)
from muster.conformance.case import Cases, Feature
from muster.conformance.trial import Trial, expect, not_placed
from muster.gangs.facts import HostPort, Taint, TaintEffect
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_case = CASES.case
_X: Final = pod_class(1)


async def _explained(trial: Trial, group: pb.GangGroup) -> pb.Explanation:
    result = await trial.ask_one(group)
    not_placed(result)
    expect(result.explanation.summary, "the explanation has no summary")
    return result.explanation


@_case("E01", "Who has no place is told so in a sentence that fits into an event")
async def a_sentence(trial: Trial) -> None:
    await trial.given(world([node("a", 2)], [_X]))
    said = (await _explained(trial, alone((_X, 3)))).summary
    expect(len(said) <= 1024, f"the summary has {len(said)} characters")


@_case("E02", "How many members fit and how many would have to, and whose")
async def how_many(trial: Trial) -> None:
    await trial.given(world([node("a", 2), node("b", 3)], [_X]))
    told = await _explained(trial, together(gang((_X, 2), id="fits"), gang((_X, 4), id="does not"), id="both"))
    expect(told.gang == "does not", f"gang {told.gang!r} is named")
    expect(told.class_id == _X.id, f"class {told.class_id!r} is named, its members are of {_X.id!r}")
    expect((told.fit, told.needed) == (3, 4), f"{told.fit} of {told.needed} are told to fit, 3 of 4 do")


@_case("E03", "Nodes that cannot be used are counted by reason, each once, in kube-scheduler's words")
async def filtered_nodes(trial: Trial) -> None:
    taint = (Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),)
    machines = [
        node("a", unschedulable=True),
        *nodes("t", 2, taints=taint),
        *nodes("s", 3, 0.5, labels={"pool": "mine"}),
        *nodes("l", 4, labels={"pool": "other"}),
    ]
    picky = pod_class(1, node_selector=(("pool", "mine"),))
    await trial.given(world(machines, [picky]))
    told = await _explained(trial, alone((picky, 1)))
    lost = {each.reason: each.nodes for each in told.filtered_nodes}
    expected = {
        "node(s) were unschedulable": 1,
        "node(s) had untolerated taint {gpu: yes}": 2,
        "node(s) didn't match Pod's node affinity/selector": 4,
        "Insufficient cpu": 3,
    }
    expect(lost == expected, f"told {lost}, right is {expected}")


@_case("E04", "What is short is named: the resource that there is too little of")
async def short_of(trial: Trial) -> None:
    greedy = pod_class(1, memory=700)
    await trial.given(world(nodes("n", 2, 8, memory=1000), [greedy]))
    told = await _explained(trial, alone((greedy, 3)))
    short = {each.name for each in told.short_by}
    expect(short == {"memory"}, f"told to be short of {sorted(short)}, it is short of memory alone")


@_case("E05", "Host ports that are taken are the reason where they are (P30)")
async def ports(trial: Trial) -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 8080),))  # noqa: S104
    await trial.given(world(nodes("n", 2), [web], [bound(web, "n-0"), bound(web, "n-1")]))
    told = await _explained(trial, alone((web, 1)))
    reasons = [each.reason for each in told.filtered_nodes]
    expect(any("port" in reason for reason in reasons), f"the reasons are {reasons}")


@_case("E06", "With constraints: the best domain, how many fit there, and what would help (P06)", Feature.CONSTRAINTS)
async def best_domain(trial: Trial) -> None:
    domains = {"r0": {"a": 2, "b": 3}, "r1": {"c": 2, "d": 2}}
    await trial.given(world(nodes_of(domains), [_X], trees=[tree("rack", domains)]))
    told = await _explained(trial, alone((_X, 8), constraints=[pack("rack", hard=True)]))
    expect((told.best_domain, told.best_domain_fit) == ("r0", 5), f"told {told.best_domain!r} {told.best_domain_fit}")
    expect("rack" in told.remedy, f"making the constraint on racks soft would help; the remedy is {told.remedy!r}")
