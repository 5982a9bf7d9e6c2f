"""Random clusters with inter-pod rules: few nodes, few labels, all kinds of rules."""

from dataclasses import dataclass

from hypothesis import strategies as st

from builders.placement.clusters import amounts, node
from muster.gangs.facts import (
    HostPort,
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    PodTerm,
    PreferredPodTerm,
    SpreadConstraint,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)

KEYS, SELECTORS, NODES = ("host", "rack", "zone"), ("a", "b", "c"), ("n0", "n1", "n2", "n3")
TAINTS = (
    Taint("dedicated", "x", TaintEffect.NO_SCHEDULE),
    Taint("spot", "", TaintEffect.PREFER_NO_SCHEDULE),
)

terms = st.builds(PodTerm, st.sampled_from(SELECTORS), st.sampled_from(KEYS))
spreads = st.builds(
    SpreadConstraint,
    st.integers(1, 2),
    st.sampled_from(KEYS),
    st.sampled_from(SELECTORS),
    hard=st.sampled_from([True, True, True, False]),
    min_domains=st.sampled_from([1, 1, 2, 3]),
    ignores_node_affinity=st.booleans(),
    honors_taints=st.booleans(),
)
ports = st.builds(
    HostPort, st.sampled_from(["TCP", "UDP"]), st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]), st.just(80)
)


def _in_zones(*zones: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((NodeRequirement("zone", NodeOperator.IN, zones),))


@st.composite
def pod_classes(draw: st.DrawFn, name: str, crowded: bool = False) -> PodClass:
    """`crowded`: most classes have every kind of rule."""

    def some(what: st.SearchStrategy[object], most: int = 1) -> tuple:  # type: ignore[type-arg]
        if not crowded and draw(st.integers(0, 2)):
            return ()
        return tuple(draw(st.lists(what, max_size=most)))

    spread = {(each.topology_key, each.hard): each for each in some(spreads, 2)}
    return PodClass(
        name,
        amounts(draw(st.sampled_from([0, 1, 1, 2])), pods=1),
        tuple(sorted(draw(st.sampled_from([{}, {}, {}, {"zone": "z0"}])).items())),
        tolerations=some(st.just(Toleration("dedicated", TolerationOperator.EXISTS))),
        label_set="+".join(sorted(draw(st.sets(st.sampled_from(SELECTORS), max_size=3)))),
        required_pod_affinity=some(terms, 2),
        required_pod_anti_affinity=some(terms, 2),
        preferred_pod_affinity=some(
            st.builds(PreferredPodTerm, st.sampled_from([-100, -7, 7, 100]), terms),
        ),
        spread=tuple(spread.values()),
        host_ports=some(ports),
        volumes=some(st.sampled_from([(_in_zones("z0"),), (_in_zones("z0", "z1"),)])),
    )


@st.composite
def machines(draw: st.DrawFn, most: int = 4, most_cpu: int = 4) -> list[NodeFacts]:
    built = []
    for name in NODES[: draw(st.integers(1, most))]:
        labels = {
            "host": draw(st.sampled_from([name, name, name, "shared", ""])),
            "rack": draw(st.sampled_from(["r0", "r1", "r2", ""])),
            "zone": draw(st.sampled_from(["z0", "z0", "z1", "z1", ""])),
        }
        built.append(
            node(
                name,
                draw(st.integers(0, most_cpu)),
                labels={key: value for key, value in labels.items() if value},
                taints=draw(st.lists(st.sampled_from(TAINTS), max_size=1)),
            )
        )
    return built


@dataclass(frozen=True)
class RandomCluster:
    """Nodes, classes, and (uid, class id, node, deletion started) of pods, some on unknown nodes."""

    nodes: list[NodeFacts]
    classes: list[PodClass]
    bound: list[tuple[str, str, str, bool]]


@st.composite
def random_clusters(
    draw: st.DrawFn, classes: int = 3, most_bound: int = 4, most_nodes: int = 4, most_cpu: int = 4
) -> RandomCluster:
    nodes = draw(machines(most_nodes, most_cpu))
    built = [draw(pod_classes(f"c{index}")) for index in range(classes)]
    places = st.tuples(
        st.sampled_from([each.id for each in built]), st.sampled_from(NODES), st.sampled_from([False, False, True])
    )
    bound = [(f"u{index}", *place) for index, place in enumerate(draw(st.lists(places, max_size=most_bound)))]
    return RandomCluster(nodes, built, bound)
