"""Clusters with a topology tree, in the notation of the placement cases: "r0(a:4,b:4) r1(c:8)"."""

import re
from collections.abc import Iterator, Sequence

from builders.placement.clusters import answers, node, pod_class
from builders.placement.labels import LabelledCluster
from muster.gangs.facts import Batch, PodClass, PodFacts, TopologyTree, TreeDomain, TreeLevel
from muster.gangs.solve import PodsOnNode, Role, SolveGang, SolveGroup
from muster.placement.solve.instance import Answer
from muster.placement.state.cluster import Cluster
from muster.topology.constraints import parse_constraints

_TOKEN = re.compile(r"[\w-]+|[():,]")


def tree_of(text: str, levels: str = "rack node") -> tuple[TopologyTree, dict[str, int]]:
    """The tree, and how many members of one cpu fit on each node. `levels` from the top, the nodes' last."""
    domains: list[TreeDomain] = []
    leaves: list[tuple[str, int]] = []
    free: dict[str, int] = {}

    def read(level: int, parent: int, tokens: Iterator[str]) -> None:
        name = ""
        for token in tokens:
            if token == "(":
                domains.append(TreeDomain(name, level, parent))
                read(level + 1, len(domains) - 1, tokens)
            elif token == ")":
                return
            elif token == ":":
                leaves.append((name, parent))
                free[name] = int(next(tokens))
            elif token != ",":
                name = token

    read(0, -1, iter(_TOKEN.findall(text)))
    named = tuple(TreeLevel(each) for each in levels.split())
    return TopologyTree("cluster", named, tuple(domains), tuple(leaves), default=True), free


def tree_cluster(
    text: str,
    levels: str = "rack node",
    *,
    placed: dict[str, int] | None = None,
    classes: Sequence[PodClass] = (),
    shuffled: Sequence[str] | None = None,
) -> Cluster:
    """The cluster; `placed` members do not use the capacity of nodes. `shuffled`: order of nodes."""
    tree, free = tree_of(text, levels)
    pods = tuple(
        PodFacts(f"{name}-{number}", "default", f"{name}-{number}", "x", node=name)
        for name, count in (placed or {}).items()
        for number in range(count)
    )
    built = LabelledCluster()
    nodes = tuple(node(name, free[name] + (placed or {}).get(name, 0), memory=0) for name in shuffled or free)
    built.apply(Batch(pod_classes=(pod_class("x"), *classes), nodes=nodes, pods=pods, trees=(tree,)))
    return built


def asking(
    constraints: str, members: int, minimum: int | None = None, placed: dict[str, int] | None = None
) -> SolveGroup:
    """A homogeneous gang with constraints in the annotation's syntax; "" for none."""
    pods = tuple(PodsOnNode(name, "x", count) for name, count in (placed or {}).items())
    asked = parse_constraints(constraints) if constraints else ()
    gang = SolveGang("g", members if minimum is None else minimum, (Role("x", members),), "", asked, pods)
    return SolveGroup("g", (gang,))


def answer_to(
    text: str,
    constraints: str,
    members: int,
    *,
    levels: str = "rack node",
    minimum: int | None = None,
    placed: dict[str, int] | None = None,
) -> Answer:
    """The answer for a gang on a tree."""
    [answer] = answers(tree_cluster(text, levels, placed=placed), asking(constraints, members, minimum, placed))
    return answer
