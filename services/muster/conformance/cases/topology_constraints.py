"""Topology constraints on the levels of a tree, each checked by properties that every correct answer has."""

from collections.abc import Callable, Iterable
from typing import Final

from muster.conformance.builders import (
    Domains,
    bound,
    cluster,
    factor,
    node,
    nodes_of,
    pack,
    partition,
    pod_class,
    single_gang,
    sizes,
    spread,
    tree,
)
from muster.conformance.case import CaseFunction, Cases, Feature
from muster.conformance.case_run import CaseRun, expect, infeasible, not_placed, placed
from muster.gangs.facts import LevelConstraint, TopologyTree
from muster.placement.v1 import placement_pb2 as pb

CASES: Final = Cases()
_X: Final = pod_class(1)


def _case(id: str, title: str) -> Callable[[CaseFunction], CaseFunction]:  # noqa: A002
    return CASES.case(id, title, Feature.CONSTRAINTS)


async def _solve(run: CaseRun, domains: Domains, count: int, *constraints: LevelConstraint) -> pb.GroupResult:
    """Solve a gang of `count` members on racks of nodes; numbers in `domains` are members that fit on the node."""
    levels = "zone rack" if any(isinstance(inner, dict) for inner in _inner(domains)) else "rack"
    await run.start(cluster(nodes_of(domains), [_X], trees=[tree(levels, domains)]))
    return await run.solve_one(single_gang((_X, count), constraints=constraints))


def _inner(domains: Domains) -> Iterable[object]:
    return (value for domain in domains.values() for value in domain.values())


def _even(numbers: Iterable[int]) -> bool:
    listed = list(numbers)
    return max(listed) - min(listed) <= 1


@_case("T01", "rack pack, node pack: one rack and one node hold all members (P01)")
async def p01(run: CaseRun) -> None:
    domains = {"r0": {"a": 4, "b": 4}, "r1": {"c": 8, "d": 8}}
    by_node = placed(await _solve(run, domains, 8, pack("rack"), pack("node")), 8)
    expect(len(by_node) == 1, f"one node fits all members, but they are on {by_node}")


@_case("T02", "rack pack, node spread: evenly in the smallest rack that holds all members (P02)")
async def p02(run: CaseRun) -> None:
    domains = {"r0": {"a": 4, "b": 4}, "r1": {"c": 8, "d": 8}}
    by_node = placed(await _solve(run, domains, 8, pack("rack"), spread("node")), 8)
    expect(by_node == {"a": 4, "b": 4}, f"r0 fits all members exactly, but they are on {by_node}")


@_case("T03", "rack pack, node spread: as even as capacity allows (P03)")
async def p03(run: CaseRun) -> None:
    domains = {"r0": {"a": 3, "b": 2, "c": 9}, "r1": {"d": 1}}
    by_node = placed(await _solve(run, domains, 8, pack("rack"), spread("node")), 8)
    expect(by_node == {"a": 3, "b": 2, "c": 3}, f"they are on {by_node}")


@_case("T04", "rack pack, soft: a gang that fits no single rack is placed across racks (P04)")
async def p04(run: CaseRun) -> None:
    placed(await _solve(run, {"r0": {"a": 2, "b": 2}, "r1": {"c": 2, "d": 2}}, 8, pack("rack")), 8)


@_case(
    "T05",
    "rack pack, hard: a gang that fits no single rack is infeasible, and the explanation names the best fit (P06)",
)
async def p06(run: CaseRun) -> None:
    domains = {"r0": {"a": 2, "b": 2}, "r1": {"c": 2, "d": 2}}
    result = await _solve(run, domains, 8, pack("rack", hard=True))
    infeasible(result)
    fit = result.explanation.best_domain_fit
    expect(fit == 4, f"the best rack fits 4 members, but best_domain_fit is {fit}")


@_case("T06", "rack pack, hard: a gang that fits a rack is placed there although another rack has larger nodes")
async def in_one_rack(run: CaseRun) -> None:
    domains = {"r0": {"a": 3, "b": 3, "c": 3}, "r1": {"d": 4, "e": 4}}
    by_node = placed(await _solve(run, domains, 8, pack("rack", hard=True)), 8)
    racks = {("r0" if name in domains["r0"] else "r1") for name in by_node}
    expect(len(racks) == 1, f"they are on {by_node}")


@_case("T07", "rack partition(2), node pack: two halves (P07)")
async def p07(run: CaseRun) -> None:
    by_node = placed(await _solve(run, {"r0": {"a": 8}, "r1": {"b": 8}}, 8, partition("rack", 2), pack("node")), 8)
    expect(by_node == {"a": 4, "b": 4}, f"they are on {by_node}")


@_case("T08", "rack partition(2): the two racks that can hold equal parts (P08)")
async def p08(run: CaseRun) -> None:
    domains = {"r0": {"a": 3, "b": 3}, "r1": {"c": 5}, "r2": {"d": 1}}
    by_node = placed(await _solve(run, domains, 8, partition("rack", 2)), 8)
    parts = [sum(by_node.get(name, 0) for name in rack) for rack in domains.values()]
    expect(parts == [4, 4, 0], f"the racks have {parts}")


@_case("T09", "rack partition(3), hard: infeasible if parts would differ by more than one (P09)")
async def p09(run: CaseRun) -> None:
    domains = {"r0": {"a": 8}, "r1": {"b": 2}, "r2": {"c": 2}}
    infeasible(await _solve(run, domains, 9, partition("rack", 3, hard=True)))


@_case("T10", "server pack, node spread with range(2,4): one server, each used node in the range (P10)")
async def p10(run: CaseRun) -> None:
    domains = {"s0": {"a": 1, "b": 1, "c": 2}, "s1": {"d": 2, "e": 2, "f": 2, "g": 3}}
    made = cluster(nodes_of(domains), [_X], trees=[tree("server", domains)])
    await run.start(made)
    constraints = pack("server"), spread("node"), sizes("node", 2, 4)
    by_node = placed(await run.solve_one(single_gang((_X, 6), constraints=constraints)), 6)
    expect(set(by_node) <= set("defg"), f"s1 fits all members, but they are on {by_node}")
    expect(sorted(by_node.values()) == [2, 2, 2], f"they are on {by_node}")


@_case("T11", "node range(2,4), hard: infeasible if a node would have more or fewer members (P11)")
async def p11(run: CaseRun) -> None:
    infeasible(await _solve(run, {"s0": {"a": 5, "b": 1}}, 6, sizes("node", 2, 4, hard=True)))


@_case("T12", "node factor(4): four and four instead of seven and one (P12)")
async def p12(run: CaseRun) -> None:
    by_node = placed(await _solve(run, {"r0": {"a": 7, "b": 6}}, 8, factor("node", 4)), 8)
    expect(by_node == {"a": 4, "b": 4}, f"they are on {by_node}")


@_case("T13", "node factor(4), hard: infeasible if no node holds four members (P13)")
async def p13(run: CaseRun) -> None:
    infeasible(await _solve(run, {"r0": {"a": 3, "b": 3, "c": 3}}, 8, factor("node", 4, hard=True)))


@_case("T14", "node spread on 26 nodes that hold one member each: one member each (P15)")
async def p15(run: CaseRun) -> None:
    names = [chr(ord("a") + index) for index in range(26)]
    await run.start(cluster([node(name, 1) for name in names], [_X], trees=[TopologyTree("flat", default=True)]))
    by_node = placed(await run.solve_one(single_gang((_X, 26), constraints=[spread("node")])), 26)
    expect(len(by_node) == 26, f"they are on {by_node}")


@_case("T15", "rack spread: evenly over all racks (P16)")
async def p16(run: CaseRun) -> None:
    by_node = placed(await _solve(run, {"r0": {"a": 4}, "r1": {"b": 4}, "r2": {"c": 4}}, 4, spread("rack")), 4)
    expect(sorted(by_node.values()) == [1, 1, 2], f"they are on {by_node}")


@_case("T16", "Placed members count: the gang grows in their rack (P17)")
async def p17(run: CaseRun) -> None:
    domains = {"r0": {"a": 4}, "r1": {"b": 4}}
    pods = [bound(_X, "b", 2)]
    await run.start(cluster(nodes_of(domains), [_X], pods, [tree("rack", domains)]))
    group = single_gang((_X, 2), constraints=[pack("rack")], placed=[("b", _X, 2)])
    by_node = placed(await run.solve_one(group), 2)
    expect(by_node == {"b": 2}, f"two members are on b, but the others are on {by_node}")


_ZONES: Final[Domains] = {
    "z0": {"r0": {"a": 4, "b": 4}, "r1": {"c": 4, "d": 4}},
    "z1": {"r2": {"e": 8, "f": 8}},
}


@_case("T17", "zone pack, rack spread, node pack: one zone, evenly over its racks (P18)")
async def p18(run: CaseRun) -> None:
    by_node = placed(await _solve(run, _ZONES, 16, pack("zone"), spread("rack"), pack("node")), 16)
    expect(by_node in (dict.fromkeys("abcd", 4), {"e": 8, "f": 8}), f"one zone fits all, but they are on {by_node}")


@_case("T18", "zone pack, hard: infeasible if no zone holds all members; the best zone holds 16 (P19)")
async def p19(run: CaseRun) -> None:
    result = await _solve(run, _ZONES, 17, pack("zone", hard=True), spread("rack"), pack("node"))
    infeasible(result)
    fit = result.explanation.best_domain_fit
    expect(fit == 16, f"the best zone fits 16 members, but best_domain_fit is {fit}")


@_case("T19", "rack pack: the one rack that holds all members, not fifty small ones (P20)")
async def p20(run: CaseRun) -> None:
    domains = {"r0": {"a": 8}, **{f"s{index}": {f"n{index}": 1} for index in range(50)}}
    by_node = placed(await _solve(run, domains, 8, pack("rack")), 8)
    expect(by_node == {"a": 8}, f"they are on {by_node}")


@_case("T20", "A hard constraint below soft ones is satisfied, and the soft ones as far as possible")
async def hard_below(run: CaseRun) -> None:
    domains = {"z0": {"r0": {"a": 3, "b": 1}}, "z1": {"r1": {"c": 2, "d": 2}, "r2": {"e": 2}}}
    by_node = placed(await _solve(run, domains, 6, pack("zone"), sizes("node", 2, 2, hard=True)), 6)
    expect(by_node == {"c": 2, "d": 2, "e": 2}, f"z1 fits all members in twos, but they are on {by_node}")


@_case("T21", "Soft constraints are relaxed, lower levels first, before any member is left out")
async def soft_constraints_relaxed(run: CaseRun) -> None:
    domains = {"r0": {"a": 3, "b": 3}, "r1": {"c": 2, "d": 2}}
    result = await _solve(run, domains, 6, pack("rack"), factor("node", 2))
    by_node = placed(result, 6)
    expect(set(by_node) == {"a", "b"}, f"the rack has precedence over the factor, but they are on {by_node}")
    await run.start(cluster(nodes_of(domains), [_X], trees=[tree("rack", domains)]))
    placed(await run.solve_one(single_gang((_X, 12), minimum=4, constraints=[pack("rack"), spread("node")])), 10)


@_case("T22", "Hard spread: all racks with sizes that differ by at most one, or not placed")
async def hard_spread(run: CaseRun) -> None:
    domains = {"r0": {"a": 4}, "r1": {"b": 2}, "r2": {"c": 4}}
    by_node = placed(await _solve(run, domains, 7, spread("rack", hard=True)), 7)
    expect(len(by_node) == 3 and _even(by_node.values()), f"they are on {by_node}")
    not_placed(await run.solve_one(single_gang((_X, 10), constraints=[spread("rack", hard=True)])))


@_case("T23", "Upper levels divide members so that hard sizes below can be satisfied")
async def shares_that_satisfy_sizes(run: CaseRun) -> None:
    domains = {"r0": {"a": 3, "b": 1}, "r1": {"c": 3}}
    for above in (spread("rack"), spread("rack", hard=True)):
        by_node = placed(await _solve(run, domains, 2, above, sizes("node", 2, 2, hard=True)), 2)
        expect(list(by_node.values()) == [2], f"they are on {by_node}")
    by_node = placed(await _solve(run, domains, 3, partition("rack", 2), sizes("node", 2, 3, hard=True)), 3)
    expect(list(by_node.values()) == [3], f"they are on {by_node}")
