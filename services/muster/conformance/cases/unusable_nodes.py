"""Safety: nodes that reject the members are not used, whatever their capacity."""

from typing import Final

from muster.conformance.builders import HOSTNAME, ZONE, bound, cluster, node, nodes, pod_class, single_gang
from muster.conformance.case import Cases
from muster.conformance.case_run import CaseRun, not_placed
from muster.gangs.facts import (
    Batch,
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)

CASES: Final = Cases()
_case = CASES.case

_NO_SCHEDULE, _NO_EXECUTE = TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE


def _where(key: str, operator: NodeOperator, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(labels=(NodeRequirement(key, operator, values),))


async def _solve_all(run: CaseRun, machines: list[NodeFacts], classes: list[PodClass]) -> None:
    """Solve each class by itself, for one pod and for as many as all nodes together could hold."""
    await run.start(cluster(machines, classes))
    for each in classes:
        for count in (1, 3, 8 * len(machines)):
            await run.solve_one(single_gang((each, count), minimum=1))
            await run.solve_one(single_gang((each, count)))


@_case("S20", "Cordoned nodes and nodes that are not ready are not used")
async def out_of_service(run: CaseRun) -> None:
    x = pod_class(1)
    tolerant = pod_class(
        1,
        tolerations=(
            Toleration("node.kubernetes.io/unschedulable", TolerationOperator.EXISTS),
            Toleration("node.kubernetes.io/not-ready", TolerationOperator.EXISTS),
        ),
    )
    machines = [node("a", unschedulable=True), node("b", ready=False), node("c", 2)]
    await _solve_all(run, machines, [x, tolerant])


@_case("S21", "Untolerated NoSchedule and NoExecute taints are respected")
async def taints(run: CaseRun) -> None:
    machines = [
        node("plain", 1),
        node("gpu", taints=(Taint("gpu", "yes", _NO_SCHEDULE),)),
        node("leaving", taints=(Taint("leaving", "", _NO_EXECUTE),)),
        node("both", taints=(Taint("gpu", "no", _NO_SCHEDULE), Taint("leaving", "", _NO_EXECUTE))),
        node("rather not", 1, taints=(Taint("gpu", "yes", TaintEffect.PREFER_NO_SCHEDULE),)),
    ]
    exists, equal = TolerationOperator.EXISTS, TolerationOperator.EQUAL
    tolerations = [
        (),
        (Toleration("gpu", equal, "yes"),),
        (Toleration("gpu", exists),),
        (Toleration("gpu", exists, effect=_NO_EXECUTE),),
        (Toleration("", exists, effect=_NO_SCHEDULE),),
        (Toleration("leaving", equal, ""), Toleration("gpu", equal, "no", _NO_SCHEDULE)),
        (Toleration("", exists),),
    ]
    await _solve_all(run, machines, [pod_class(1, tolerations=each) for each in tolerations])


@_case("S22", "Node selectors and required node affinity are respected, with every operator")
async def affinity(run: CaseRun) -> None:
    machines = [
        node("a", labels={"rack": "r0", "size": "8"}),
        node("b", labels={"rack": "r1", "size": "16"}),
        node("c", labels={"rack": "r1", "size": "large"}),
        node("d", labels={"rack": ""}),
        node("e"),
    ]
    kind = NodeOperator
    requirements = [
        (_where("rack", kind.IN, "r0", "r2"),),
        (_where("rack", kind.NOT_IN, "r0"),),
        (_where("rack", kind.EXISTS),),
        (_where("rack", kind.DOES_NOT_EXIST),),
        (_where("size", kind.GT, "8"),),
        (_where("size", kind.LT, "16"),),
        (_where("rack", kind.IN, "r0"), _where("size", kind.GT, "10")),
        (NodeSelectorTerm((NodeRequirement("rack", kind.IN, ("r1",)), NodeRequirement("size", kind.GT, ("3",)))),),
        (NodeSelectorTerm(fields=(NodeRequirement("metadata.name", kind.IN, ("d",)),)),),
        (NodeSelectorTerm(fields=(NodeRequirement("metadata.name", kind.NOT_IN, ("d",)),)),),
        (NodeSelectorTerm(),),
        (),
    ]
    classes = [pod_class(1, required_node_affinity=terms) for terms in requirements]
    classes += [pod_class(1, node_selector=(("rack", value),)) for value in ("r1", "", "r9")]
    classes.append(
        pod_class(1, node_selector=(("rack", "r1"),), required_node_affinity=(_where("size", kind.LT, "20"),))
    )
    await _solve_all(run, machines, classes)


@_case("S23", "Members are placed only on nodes that can reach their volumes")
async def volumes(run: CaseRun) -> None:
    machines = [node(f"{zone}{index}", 2, labels={ZONE: zone}) for zone in "xyz" for index in range(2)]
    in_x, not_z = (_where(ZONE, NodeOperator.IN, "x"),), (_where(ZONE, NodeOperator.NOT_IN, "z"),)
    on_y0 = (_where(HOSTNAME, NodeOperator.IN, "y0"),)
    await _solve_all(run, machines, [pod_class(1, volumes=each) for each in ((in_x,), (not_z, on_y0), (in_x, on_y0))])


@_case("S24", "Removed nodes and nodes missing from a new snapshot are not used")
async def removed_nodes(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 3, 2), [x]))
    run.change(Batch(removed_nodes=("n-1",)))
    await run.solve_one(single_gang((x, 4)))
    not_placed(await run.solve_one(single_gang((x, 5))))
    await run.start(cluster([node("other", 2)], [x]))
    await run.solve_one(single_gang((x, 2)))
    not_placed(await run.solve_one(single_gang((x, 3))))


@_case("S25", "A changed node is used as it is now: smaller, cordoned, tainted or relabelled")
async def changed_nodes(run: CaseRun) -> None:
    x, picky = pod_class(1), pod_class(1, node_selector=(("rack", "r0"),))
    await run.start(cluster([node("a", 8, labels={"rack": "r0"}), node("b", 1)], [x, picky]))
    states = (
        node("a", 2, labels={"rack": "r0"}),
        node("a", 8, labels={"rack": "r1"}),
        node("a", 8, labels={"rack": "r0"}, unschedulable=True),
        node("a", 8, labels={"rack": "r0"}, taints=(Taint("t", "", _NO_SCHEDULE),)),
        node("a", 8, labels={"rack": "r0"}, ready=False),
    )
    for state in states:
        run.change(Batch(nodes=(state,)))
        for each in (x, picky):
            await run.solve_one(single_gang((each, 3), minimum=1))


@_case("S26", "A node that is added again under its name is new, and pods still bound to it count")
async def node_added_again(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 4)], [x], [bound(x, "a", 3)]))
    run.change(Batch(removed_nodes=("a",)))
    await run.solve_one(single_gang((x, 5), minimum=1))
    run.change(Batch(nodes=(node("a", 4),)))
    await run.solve_one(single_gang((x, 8), minimum=1))
    not_placed(await run.solve_one(single_gang((x, 6))))


@_case("S27", "Pods may be sent before their node, and count once the node is added")
async def pods_first(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 1)], [x], [bound(x, "late", 3)]))
    await run.solve_one(single_gang((x, 2), minimum=1))
    run.change(Batch(nodes=(node("late", 4),)))
    await run.solve_one(single_gang((x, 8), minimum=1))
    not_placed(await run.solve_one(single_gang((x, 3))))
