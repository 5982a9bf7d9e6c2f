"""Topology trees: changes of trees, nodes outside trees, trees by node labels."""

from typing import Final

from muster.conformance.builders import bound, cluster, node, nodes_of, pack, pod_class, single_gang, spread, tree
from muster.conformance.case import Cases, Feature
from muster.conformance.case_run import CaseRun, expect, not_placed, placed
from muster.gangs.facts import Batch, Taint, TaintEffect, TopologyTree, TreeLevel

CASES: Final = Cases()
_needs = Feature.CONSTRAINTS
_case = CASES.case
_X: Final = pod_class(1)
_IN_ONE_RACK: Final = (pack("rack", hard=True),)


@_case("T30", "Nodes that the class cannot use count for no rack: by selector (P25), by taint (P26)", _needs)
async def nodes_by_filter(run: CaseRun) -> None:
    domains = {"r0": {"a": 8, "b": 8}, "r1": {"c": 2, "d": 2}}
    picky = pod_class(1, node_selector=(("pool", "p"),))
    machines = [node(name, 8) for name in "ab"] + [node(name, 2, labels={"pool": "p"}) for name in "cd"]
    await run.start(cluster(machines, [picky], trees=[tree("rack", domains)]))
    by_node = placed(await run.solve_one(single_gang((picky, 4), constraints=[pack("rack")])), 4)
    expect(by_node == {"c": 2, "d": 2}, f"they are on {by_node}")
    taint = (Taint("t", "", TaintEffect.NO_SCHEDULE),)
    machines = [node("a", 3), node("b", 8, taints=taint), node("c", 2), node("d", 2)]
    await run.start(cluster(machines, [_X], trees=[tree("rack", domains)]))
    by_node = placed(await run.solve_one(single_gang((_X, 4), constraints=_IN_ONE_RACK)), 4)
    expect(by_node == {"c": 2, "d": 2}, f"they are on {by_node}")


@_case("T31", "Nodes that a tree lists but that do not exist are ignored (P34)", _needs)
async def missing_nodes(run: CaseRun) -> None:
    domains = {"r0": {"a": 2, "ghost": 100}, "r1": {"b": 3, "c": 1}}
    machines = [each for each in nodes_of(domains) if each.name != "ghost"]
    await run.start(cluster(machines, [_X], trees=[tree("rack", domains)]))
    by_node = placed(await run.solve_one(single_gang((_X, 4), constraints=_IN_ONE_RACK)), 4)
    expect(by_node == {"b": 3, "c": 1}, f"they are on {by_node}")


@_case(
    "T32",
    "A node outside the tree is used only if no constraint above the nodes is hard, and only if needed (P34)",
    _needs,
)
async def nodes_outside(run: CaseRun) -> None:
    domains = {"r0": {"a": 2, "b": 2}}
    await run.start(cluster([*nodes_of(domains), node("z", 8)], [_X], trees=[tree("rack", domains)]))
    not_placed(await run.solve_one(single_gang((_X, 5), constraints=_IN_ONE_RACK)))
    within = placed(await run.solve_one(single_gang((_X, 4), constraints=[pack("rack")])), 4)
    expect("z" not in within, f"r0 fits all members, but they are on {within}")
    placed(await run.solve_one(single_gang((_X, 12), constraints=[pack("rack")])), 12)


@_case("T33", "Domains may be node label values; a node without the label is outside the tree", _needs)
async def by_labels(run: CaseRun) -> None:
    machines = [
        node("a", 2, labels={"zone": "x", "rack": "1"}),
        node("b", 2, labels={"zone": "x", "rack": "1"}),
        node("c", 4, labels={"zone": "y", "rack": "1"}),
        node("d", 9, labels={"zone": "y"}),
    ]
    levels = TreeLevel("zone", "zone"), TreeLevel("rack", "rack"), TreeLevel("node")
    await run.start(cluster(machines, [_X], trees=[TopologyTree("labels", levels, default=True)]))
    by_node = placed(await run.solve_one(single_gang((_X, 4), constraints=[*_IN_ONE_RACK, spread("node")])), 4)
    expect(by_node == {"a": 2, "b": 2}, f"rack 1 of zone x is not rack 1 of zone y, but they are on {by_node}")
    not_placed(await run.solve_one(single_gang((_X, 5), constraints=_IN_ONE_RACK)))
    run.change(Batch(nodes=(node("d", 9, labels={"zone": "y", "rack": "1"}),)))
    placed(await run.solve_one(single_gang((_X, 5), constraints=_IN_ONE_RACK)), 5)


@_case("T34", "A gang uses the tree that it names, or the default tree", _needs)
async def two_trees(run: CaseRun) -> None:
    cooling = tree("rack", {"r0": {"a": 4, "b": 4}, "r1": {"c": 4, "d": 4}})
    power = tree("rack", {"p0": {"a": 4, "c": 4}, "p1": {"b": 4, "d": 4}}, name="power", default=False)
    await run.start(cluster([node(name, 4) for name in "abcd"], [_X], trees=[cooling, power]))
    by_default = placed(await run.solve_one(single_gang((_X, 8), constraints=_IN_ONE_RACK)), 8)
    expect(set(by_default) in ({"a", "b"}, {"c", "d"}), f"they are on {by_default}")
    by_name = placed(await run.solve_one(single_gang((_X, 8), tree="power", constraints=_IN_ONE_RACK)), 8)
    expect(set(by_name) in ({"a", "c"}, {"b", "d"}), f"they are on {by_name}")


@_case("T35", "A changed tree takes effect with the next solve, and a removed tree has no effect", _needs)
async def changed_trees(run: CaseRun) -> None:
    before, after = {"r0": {"a": 4, "b": 4}, "r1": {"c": 4}}, {"r0": {"a": 4}, "r1": {"b": 4, "c": 4}}
    await run.start(cluster([node(name, 4) for name in "abc"], [_X], trees=[tree("rack", before)]))
    by_node = placed(await run.solve_one(single_gang((_X, 8), constraints=_IN_ONE_RACK)), 8)
    expect(set(by_node) == {"a", "b"}, f"they are on {by_node}")
    run.change(Batch(trees=(tree("rack", after),)))
    by_node = placed(await run.solve_one(single_gang((_X, 8), constraints=_IN_ONE_RACK)), 8)
    expect(set(by_node) == {"b", "c"}, f"they are on {by_node}")
    run.change(Batch(removed_trees=("cluster",)))
    placed(await run.solve_one(single_gang((_X, 12))), 12)


@_case("T36", "Levels without a constraint are ignored", _needs)
async def unconstrained_levels(run: CaseRun) -> None:
    domains = {"z0": {"r0": {"a": 2}, "r1": {"b": 2}}, "z1": {"r2": {"c": 3}}}
    await run.start(cluster(nodes_of(domains), [_X], trees=[tree("zone rack", domains)]))
    by_node = placed(
        await run.solve_one(single_gang((_X, 4), constraints=[pack("zone", hard=True), spread("node")])), 4
    )
    expect(by_node == {"a": 2, "b": 2}, f"they are on {by_node}")


@_case("T37", "Other pods in a rack reduce the capacity of that rack", _needs)
async def other_pods(run: CaseRun) -> None:
    domains = {"r0": {"a": 4, "b": 4}, "r1": {"c": 3, "d": 3}}
    await run.start(cluster(nodes_of(domains), [_X], [bound(_X, "a", 3)], [tree("rack", domains)]))
    by_node = placed(await run.solve_one(single_gang((_X, 6), constraints=_IN_ONE_RACK)), 6)
    expect(by_node == {"c": 3, "d": 3}, f"they are on {by_node}")
