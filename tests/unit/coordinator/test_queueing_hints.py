"""Which unschedulable gang groups an event wakes: a table of queueing hints, and their effect in scenarios."""

import pytest
from msgspec.structs import replace

from builders.core.objects import node, plain_pod, pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from builders.gangs.labels import with_labels
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.events import ClusterEvent, EventKind
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.queue.wake import HINTS, MAX_EVALUATIONS, MAX_NODES, EventLog, WakeIndex
from muster.coordinator.core.slices import run_to_end
from muster.gangs.facts import (
    Batch,
    GangFacts,
    LevelConstraint,
    LevelPolicy,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    PodFacts,
    PodTerm,
    SpreadConstraint,
    TopologyTree,
    TreeLevel,
)

ZONE = "topology.kubernetes.io/zone"
CLASSES = {
    "cpu": {},
    "gpu": {"node_selector": (("pool", "gpu"),)},
    "affine": {"required_pod_affinity": (PodTerm("app=store", ZONE),)},
    "spread": {"spread": (SpreadConstraint(1, ZONE, "app=web"),)},
    "selected": {"label_set": "app=web"},
    "volume": {"volumes": ((NodeSelectorTerm((NodeRequirement("disk", NodeOperator.IN, ("a",)),)),),)},
    "rack": {},
    "timid": {},
}
"""Differences of the pod classes of one pending gang each. `rack` is constrained on a tree of labels, `timid` never
preempts; the node `plain` takes all of them but `gpu` and `volume`, the node `special` takes all."""
ALL = frozenset(CLASSES)
ON_PLAIN = ALL - {"gpu", "volume"}
INTER_POD = frozenset({"affine", "spread", "selected"})
PREEMPTORS = ALL - {"timid"}

K = EventKind
WOKEN = [
    (ClusterEvent(K.NODE_ADDED, ["plain"]), ON_PLAIN),
    (ClusterEvent(K.NODE_ADDED, ["special"]), ALL),
    (ClusterEvent(K.NODE_REMOVED, ["plain"]), INTER_POD),
    (ClusterEvent(K.NODE_LABELS_CHANGED, ["plain"], ["owner"]), {"selected"}),
    (ClusterEvent(K.NODE_LABELS_CHANGED, ["plain"], ["pool"]), {"gpu", "selected"}),
    (ClusterEvent(K.NODE_LABELS_CHANGED, ["plain"], [ZONE]), {"affine", "spread", "selected"}),
    (ClusterEvent(K.NODE_LABELS_CHANGED, ["plain"], ["disk"]), {"volume", "selected"}),
    (ClusterEvent(K.NODE_LABELS_CHANGED, ["plain"], ["rack", "owner"]), {"rack", "selected"}),
    (ClusterEvent(K.NODE_TAINTS_CHANGED, ["plain"]), ON_PLAIN),
    (ClusterEvent(K.NODE_SCHEDULABLE, ["plain"]), ON_PLAIN),
    (ClusterEvent(K.NODE_SCHEDULABLE, ["unknown"]), INTER_POD),
    (ClusterEvent(K.NODE_ALLOCATABLE_INCREASED, ["plain"]), ON_PLAIN),
    (ClusterEvent(K.NODE_ALLOCATABLE_INCREASED, ["unknown"]), set()),
    (ClusterEvent(K.CAPACITY_FREED, ["plain"]), ON_PLAIN),
    (ClusterEvent(K.CAPACITY_FREED, ["tiny"]), INTER_POD),
    (ClusterEvent(K.CAPACITY_FREED, ["tiny", "special"]), ALL),
    (ClusterEvent(K.RESERVATION_RELEASED, ["plain"]), ON_PLAIN),
    (ClusterEvent(K.ASSIGNMENT_UNUSED, ["plain"]), ON_PLAIN),
    (ClusterEvent(K.POD_SCHEDULED), INTER_POD),
    (ClusterEvent(K.POD_BOUND_BY_OTHERS), ALL),
    (ClusterEvent(K.POD_PRIORITY_LOWERED), ALL),
    (ClusterEvent(K.EVICTION_CANCELLED), PREEMPTORS),
    (ClusterEvent(K.BUDGET_INCREASED), PREEMPTORS),
    (ClusterEvent(K.NOMINATION_ENDED), ALL),
    (ClusterEvent(K.TOPOLOGY_TREE_CHANGED), {"rack"}),
]


def pending_group(name: str, pod_class: PodClass) -> Group:
    group = Group(name)
    constraints = (LevelConstraint("rack", LevelPolicy.PACK, hard=True),) if name == "rack" else ()
    facts = GangFacts(f"test/default/{name}", "test", "default", name, minimum=1, constraints=constraints)
    if name == "timid":
        facts = replace(facts, never_preempts=True)
    member = Gang(facts.id, group, facts=facts, constraints=constraints)
    group.gangs.append(member)
    member.put_pod(PodFacts(f"{name}-0", "default", f"{name}-0", pod_class.id, label_set=pod_class.label_set))
    return group


@pytest.fixture
def index() -> WakeIndex:
    ledger, trees = Ledger(), TopologyTrees()
    ledger.put_node(node("plain", 8, labels={ZONE: "z", "rack": "r"}))
    ledger.put_node(node("special", 8, labels={"pool": "gpu", "disk": "a"}))
    ledger.put_node(node("tiny", 1))
    trees.put([TopologyTree("racks", (TreeLevel("rack", "rack"), TreeLevel("node")), default=True)])
    index = WakeIndex(ledger, trees)
    for name, differences in CLASSES.items():
        pod_class_ = PodClass(f"class-{name}", (("cpu", 4000), ("pods", 1)), **differences)  # type: ignore[arg-type]
        ledger.put_class(pod_class_)
        ledger.selection.apply(with_labels(Batch(pod_classes=(pod_class_,)), {}))
        index.add(name, pending_group(name, pod_class_))
    return index


def log_of(*events: ClusterEvent) -> EventLog:
    log = EventLog()
    for event in events:
        log.add(event)
    return log


def case_id(event: ClusterEvent) -> str:
    return "-".join([event.kind.name.lower(), *event.nodes, *event.label_keys])


@pytest.mark.parametrize(("event", "woken"), WOKEN, ids=[case_id(event) for event, _ in WOKEN])
def test_an_event_wakes_the_groups_that_it_could_help(event: ClusterEvent, woken: set[str], index: WakeIndex) -> None:
    assert set(run_to_end(index.helped_by(log_of(event)))) == woken


def test_every_kind_of_event_has_a_hint_and_a_case() -> None:
    assert set(HINTS) == set(EventKind) == {event.kind for event, _ in WOKEN}


def test_merged_logs_wake_what_each_of_them_wakes(index: WakeIndex) -> None:
    log = log_of(ClusterEvent(K.NODE_LABELS_CHANGED, ["plain"], ["pool"]))
    log.merge(log_of(ClusterEvent(K.TOPOLOGY_TREE_CHANGED), ClusterEvent(K.NODE_ALLOCATABLE_INCREASED, ["special"])))
    assert set(run_to_end(index.helped_by(log))) == ALL


@pytest.mark.parametrize("node_name", ["plain", "special"])
def test_a_group_of_several_pod_classes_is_woken_for_each(node_name: str, index: WakeIndex) -> None:
    mixed = pending_group("mixed", PodClass("class-gpu"))
    mixed.gangs[0].put_pod(PodFacts("mixed-1", "default", "mixed-1", "class-rack"))
    index.add("mixed", mixed)
    assert "mixed" in run_to_end(index.helped_by(log_of(ClusterEvent(K.CAPACITY_FREED, [node_name]))))


def test_a_group_waits_for_the_labels_of_all_its_pod_classes(index: WakeIndex) -> None:
    mixed = pending_group("mixed", PodClass("class-gpu"))
    mixed.gangs[0].put_pod(PodFacts("mixed-1", "default", "mixed-1", "class-volume"))
    index.add("mixed", mixed)
    label = ClusterEvent(K.NODE_LABELS_CHANGED, ["plain"], ["disk"])
    assert "mixed" in run_to_end(index.helped_by(log_of(label)))


def test_a_group_that_left_is_not_woken(index: WakeIndex) -> None:
    index.discard("rack")
    assert set(run_to_end(index.helped_by(log_of(ClusterEvent(K.TOPOLOGY_TREE_CHANGED))))) == set()


def test_events_on_very_many_nodes_wake_every_group(index: WakeIndex) -> None:
    many = [f"unknown{number}" for number in range(MAX_NODES + 1)]
    assert set(run_to_end(index.helped_by(log_of(ClusterEvent(K.CAPACITY_FREED, many))))) == ALL
    assert set(run_to_end(index.helped_by(log_of(ClusterEvent(K.CAPACITY_FREED, many[:100]))))) == INTER_POD


def test_groups_that_were_not_compared_for_lack_of_time_are_woken() -> None:
    ledger, beyond = Ledger(), 20
    index = WakeIndex(ledger, TopologyTrees())
    ledger.put_node(node("plain", 4))
    for number in range(MAX_EVALUATIONS + beyond):
        name = f"gang{number}"
        ledger.put_class(PodClass(name, node_selector=(("pool", name),)))
        group = Group(name)
        group.gangs.append(Gang(name, group, GangFacts(name, "muster", "default", name, minimum=1)))
        group.gangs[0].put_pod(PodFacts(name, "default", name, name))
        index.add(name, group)
    log = log_of(ClusterEvent(K.NODE_ALLOCATABLE_INCREASED, ["plain"]))
    assert len(run_to_end(index.helped_by(log))) == beyond
    assert len(run_to_end(index.helped_by(log))) == 0, "the others are known by now"


# ------------------------------------------------------------------------------------------------------- in scenarios


def with_pending_gpu_gang() -> Scenario:
    """A gang that needs two gpu nodes of which there is one, and has been solved once."""
    scenario = Scenario(start=False)
    gpu = replace(pod_class(4), id="gpu", node_selector=(("pool", "gpu"),))
    scenario.cluster.classes[gpu.id] = gpu
    scenario.start()
    scenario.change(nodes=[node("gpu1", 4, labels={"pool": "gpu"}), node("other", 3, labels={"pool": "cpu"})])
    built = gang("train").of(2)
    scenario.change(gangs=[built.gang_facts()], pods=[replace(pod, class_id="gpu") for pod in built.pods()])
    scenario.run()
    assert (len(scenario.solves), scenario.bound("train")) == (1, 0)
    return scenario


def test_a_label_that_no_gang_names_retries_no_gang() -> None:
    scenario = with_pending_gpu_gang()
    scenario.change(nodes=[node("other", 3, labels={"pool": "cpu", "owner": "me"})])
    scenario.run()
    assert len(scenario.solves) == 1


def test_i7_a_label_that_a_gang_names_retries_it() -> None:
    scenario = with_pending_gpu_gang()
    scenario.change(nodes=[node("other", 3, labels={"pool": "gpu"})])
    scenario.run()
    assert len(scenario.solves) == 2


def test_capacity_freed_on_an_ineligible_node_retries_no_gang() -> None:
    scenario = with_pending_gpu_gang()
    web = plain_pod("web", cpu=2)
    scenario.intrude(web, "other")
    scenario.run()
    solves = len(scenario.solves)
    scenario.change(remove_pods=[web.uid])
    scenario.run()
    assert len(scenario.solves) == solves


def test_i7_events_during_a_solve_are_not_missed() -> None:
    scenario = with_pending_gpu_gang()
    scenario.change(nodes=[node("other", 3, labels={"pool": "gpu"})])
    assert len(scenario.solves) == 2, "a solve is under way"
    scenario.change(nodes=[node("another", 4, labels={"pool": "gpu"})])
    scenario.run()
    assert scenario.bound("train") == 2
