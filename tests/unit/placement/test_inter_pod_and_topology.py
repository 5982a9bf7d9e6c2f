"""Groups with inter-pod rules and topology constraints: both are satisfied, or infeasibility is proved."""

from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.placement.clusters import alone, answers
from builders.placement.inter_pod_oracle import Places, Seated, admits_one_by_one, all_placings
from builders.placement.labels import LabelledCluster
from builders.placement.random_clusters import RandomCluster, random_clusters
from muster.gangs.facts import Batch, LevelConstraint, LevelPolicy, NodeFacts, PodFacts, TopologyTree, TreeLevel
from muster.placement.solve.instance import NotPlaced, Placed

ZONES = TopologyTree("zones", (TreeLevel("zone", "zone"), TreeLevel("node")), default=True)

constraints = st.sampled_from(
    [
        LevelConstraint("zone", LevelPolicy.PACK, hard=True),
        LevelConstraint("zone", LevelPolicy.PACK),
        LevelConstraint("zone", LevelPolicy.SPREAD, hard=True),
        LevelConstraint("zone", LevelPolicy.PARTITION, hard=True, count=2),
        LevelConstraint("node", LevelPolicy.RANGE, hard=True, minimum=1, maximum=2),
        LevelConstraint("node", LevelPolicy.FACTOR, hard=True, count=2),
    ]
)


def satisfies(constraint: LevelConstraint, places: Places, nodes: Sequence[NodeFacts]) -> bool:
    """Members at these places satisfy a hard constraint."""
    zone = {node.name: node.labels.get("zone") for node in nodes}
    sizes: dict[str, int] = {}
    for (_, name), count in places:
        domain = name if constraint.level == "node" else zone[name]
        if domain is None:
            return False
        sizes[domain] = sizes.get(domain, 0) + count
    match constraint.policy:
        case LevelPolicy.PACK:
            return len(sizes) == 1
        case LevelPolicy.SPREAD | LevelPolicy.PARTITION:
            even = max(sizes.values()) - min(sizes.values()) <= 1
            return even and (constraint.policy is LevelPolicy.SPREAD or len(sizes) == constraint.count)
        case LevelPolicy.RANGE:
            return all(constraint.minimum <= size <= constraint.maximum for size in sizes.values())
        case LevelPolicy.FACTOR:
            return all(size % constraint.count == 0 for size in sizes.values())


@settings(max_examples=250, deadline=None)
@given(random_clusters(classes=2, most_nodes=3, most_bound=2), st.integers(1, 3), st.integers(0, 2), constraints)
def test_both_are_satisfied_or_proved_infeasible(
    drawn: RandomCluster, first: int, second: int, constraint: LevelConstraint
) -> None:
    cluster = LabelledCluster()
    pods = tuple(PodFacts(uid, "d", uid, of, node=on, deleting=gone) for uid, of, on, gone in drawn.bound)
    nodes, classes = drawn.nodes, {each.id: each for each in drawn.classes}
    cluster.apply(Batch(pod_classes=tuple(drawn.classes), nodes=tuple(nodes), pods=pods, trees=(ZONES,)))
    asked = alone("g", *(role for role in (("c0", first), ("c1", second)) if role[1]))
    asked = replace(asked, gangs=(replace(asked.gangs[0], constraints=(constraint,)),))
    [answer] = answers(cluster, asked)
    there = [Seated(classes[of], on, gone) for _, of, on, gone in drawn.bound]
    wanted = [(classes[role.class_id], role.wanted) for role in asked.gangs[0].roles]
    everybody = tuple(count for _, count in wanted)
    feasible = any(
        counts == everybody and (not constraint.hard or satisfies(constraint, places, nodes))
        for counts, places in all_placings(nodes, there, wanted)
    )
    event(f"{type(answer).__name__} {getattr(answer, 'proved', '')}, {feasible=}")
    if isinstance(answer, Placed):
        members = [
            Seated(wanted[assignment.role][0], assignment.node)
            for assignment in answer.assignments
            for _ in range(assignment.count)
        ]
        assert len(members) == sum(everybody)
        assert admits_one_by_one(nodes, there, members)
        if constraint.hard:
            assert satisfies(constraint, tuple(((each.pod.id, each.node), 1) for each in members), nodes)
    else:
        assert isinstance(answer, NotPlaced)
        assert not feasible
        assert answer.proved
