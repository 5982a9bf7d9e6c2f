"""Objects of scenarios of the coordinator's core: classes, nodes, gangs with their pods, and a cluster."""

from collections import Counter
from dataclasses import dataclass, field, replace

from muster.gangs.facts import (
    Batch,
    DisruptionBudget,
    GangFacts,
    GangMode,
    MatchPolicy,
    NodeFacts,
    PodClass,
    PodFacts,
    Problem,
    RepairPolicy,
    Severity,
    TopologyTree,
    TreeDomain,
    TreeLevel,
)
from muster.topology.constraints import parse_constraints


def pod_class(cpu: int = 1) -> PodClass:
    """A class that requests whole cpus."""
    return PodClass(id=f"cpu{cpu}", requests=(("cpu", cpu * 1000), ("pods", 1)))


def class_with_volume(cpu: int = 1) -> PodClass:
    """The class of the same pods after a claim of theirs was bound to a volume."""
    return PodClass(id=f"cpu{cpu}-volume", requests=pod_class(cpu).requests)


def racks(**nodes: str) -> TopologyTree:
    """The default tree, of racks: racks(r0="a b", r1="c")."""
    domains = tuple(TreeDomain(rack, 0) for rack in sorted(nodes))
    leaves = tuple((node, index) for index, rack in enumerate(sorted(nodes)) for node in nodes[rack].split() if node)
    return TopologyTree("racks", (TreeLevel("rack"), TreeLevel("node")), domains, leaves, default=True)


def node(name: str, cpu: int, **facts: object) -> NodeFacts:
    """A node with so many cpus."""
    return NodeFacts(name, uid=name, allocatable=(("cpu", cpu * 1000), ("pods", 110)), **facts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class GangBuilder:
    """A gang with its pods: gang("a").minimum(5).of(8, cpu=2)."""

    name: str
    namespace: str = "default"
    facts: GangFacts | None = None
    sizes: tuple[tuple[int, int], ...] = ()
    age: int = 0
    priority_: int = 0
    incarnation: str = "1"
    declared: int | None = None
    group_: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    policy_: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    mode: GangMode = GangMode.STRICT
    waiting_time_seconds: float = 0.0
    repair_: RepairPolicy = RepairPolicy.WAIT
    expected_seconds: float = 0.0
    never_preempts_: bool = False
    evicted_whole_: bool = False
    starts_anew_: bool = False
    meek_: bool = False
    counts_succeeded_: bool = False
    uniform_: bool = False
    free_cpu_: int = 0
    budgets: tuple[str, ...] = ()
    tree: str = ""
    constraints: str = ""

    def minimum(self, count: int) -> "GangBuilder":
        return replace(self, declared=count)

    def of(self, count: int, cpu: int = 1) -> "GangBuilder":
        return replace(self, sizes=(*self.sizes, (count, cpu)))

    def priority(self, value: int) -> "GangBuilder":
        return replace(self, priority_=value)

    def created(self, seconds: int) -> "GangBuilder":
        return replace(self, age=seconds)

    def anew(self, incarnation: str) -> "GangBuilder":
        return replace(self, incarnation=incarnation)

    def with_group(self, *names: str) -> "GangBuilder":
        return replace(self, group_=tuple(sorted(f"test/{name}" for name in names)))

    def policy(self, policy: MatchPolicy) -> "GangBuilder":
        return replace(self, policy_=policy)

    def non_strict(self, waiting_time_seconds: float = 600.0) -> "GangBuilder":
        return replace(self, mode=GangMode.NON_STRICT, waiting_time_seconds=waiting_time_seconds)

    def repair(self, policy: RepairPolicy) -> "GangBuilder":
        return replace(self, repair_=policy)

    def expected(self, seconds: float) -> "GangBuilder":
        """Its pods declare how long they run."""
        return replace(self, expected_seconds=seconds)

    def never_preempts(self) -> "GangBuilder":
        return replace(self, never_preempts_=True)

    def meek(self) -> "GangBuilder":
        """Its declaration says that nothing is evicted for it, whatever its pods say."""
        return replace(self, meek_=True)

    def counting_succeeded(self) -> "GangBuilder":
        """Succeeded members count, once the others cannot reach the minimum alone."""
        return replace(self, counts_succeeded_=True)

    def uniform(self) -> "GangBuilder":
        """All its pods must be equal."""
        return replace(self, uniform_=True)

    def wanting_free(self, cpu: int) -> "GangBuilder":
        """Minimum resources: so many cpus must be free in the whole cluster."""
        return replace(self, free_cpu_=cpu)

    def evicted_whole(self) -> "GangBuilder":
        """Its definition allows eviction only as a whole."""
        return replace(self, evicted_whole_=True)

    def starting_anew(self) -> "GangBuilder":
        """Pods created when none is left are a new start."""
        return replace(self, starts_anew_=True)

    def budget(self, name: str) -> "GangBuilder":
        """A PodDisruptionBudget ("namespace/name") covers its pods."""
        return replace(self, budgets=tuple(sorted((*self.budgets, name))))

    def divided(self, constraints: str, tree: str = "") -> "GangBuilder":
        """Topology constraints, as users write them: "rack: hard pack; node: spread"."""
        return replace(self, constraints=constraints, tree=tree)

    def broken(self, message: str) -> "GangBuilder":
        return replace(self, problems=(Problem(Severity.BLOCKING, message),))

    @property
    def id(self) -> str:
        return f"test/{self.namespace}/{self.name}"

    def gang_facts(self) -> GangFacts:
        minimum = self.declared if self.declared is not None else sum(count for count, _ in self.sizes)
        return GangFacts(
            id=self.id,
            dialect="test",
            namespace=self.namespace,
            name=self.name,
            incarnation=self.incarnation,
            evicted_whole=self.evicted_whole_,
            starts_anew=self.starts_anew_,
            never_preempts=self.meek_,
            counts_succeeded=self.counts_succeeded_,
            uniform=self.uniform_,
            resources=(("cpu", self.free_cpu_ * 1000),) if self.free_cpu_ else (),
            minimum=0 if self.problems else minimum,
            total=max(minimum, sum(count for count, _ in self.sizes)),
            group=self.group_,
            created_seconds=self.age,
            problems=self.problems,
            match_policy=self.policy_,
            mode=self.mode,
            waiting_time_seconds=self.waiting_time_seconds,
            repair_policy=self.repair_,
            tree=self.tree,
            constraints=parse_constraints(self.constraints) if self.constraints else (),
        )

    def pods(self) -> list[PodFacts]:
        made: list[PodFacts] = []
        for count, cpu in self.sizes:
            for _ in range(count):
                name = f"{self.name}-{len(made)}"
                made.append(
                    PodFacts(
                        uid=f"{self.namespace}/{name}@{self.incarnation}",
                        namespace=self.namespace,
                        name=name,
                        class_id=pod_class(cpu).id,
                        created_seconds=self.age,
                        priority=self.priority_,
                        gang=self.id,
                        expected_seconds=self.expected_seconds,
                        never_preempts=self.never_preempts_,
                        budgets=self.budgets,
                    )
                )
        return made


def gang(name: str, namespace: str = "default") -> GangBuilder:
    """Begins a gang."""
    return GangBuilder(name, namespace)


def plain_pod(name: str, cpu: int = 1, priority: int = 0, age: int = 0, uid: str = "") -> PodFacts:
    """A pod without marks."""
    return PodFacts(
        uid=uid or f"default/{name}",
        namespace="default",
        name=name,
        class_id=pod_class(cpu).id,
        priority=priority,
        created_seconds=age,
    )


def _classes() -> list[PodClass]:
    return [*map(pod_class, range(17)), *map(class_with_volume, range(1, 4))]


@dataclass
class Cluster:
    """The API server's objects."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    gangs: dict[str, GangFacts] = field(default_factory=dict)
    budgets: dict[str, DisruptionBudget] = field(default_factory=dict)
    trees: dict[str, TopologyTree] = field(default_factory=dict)
    classes: dict[str, PodClass] = field(default_factory=lambda: {c.id: c for c in _classes()})

    used: Counter[str] = field(default_factory=Counter)
    """Millicores of bound pods by node."""

    def put_pod(self, pod: PodFacts) -> None:
        self.drop_pod(pod.uid)
        self.pods[pod.uid] = pod
        if pod.seated:
            self.used[pod.node] += self.cpu(pod)

    def drop_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None and pod.seated:
            self.used[pod.node] -= self.cpu(pod)

    def free(self) -> dict[str, int]:
        """Free millicores by node, given the bound pods."""
        return {name: dict(facts.allocatable)["cpu"] - self.used[name] for name, facts in self.nodes.items()}

    def cpu(self, pod: PodFacts) -> int:
        return self.class_cpu(pod.class_id)

    def class_cpu(self, class_id: str) -> int:
        return dict(self.classes[class_id].requests)["cpu"]

    def whole(self) -> Batch:
        return Batch(
            pod_classes=tuple(self.classes.values()),
            nodes=tuple(self.nodes.values()),
            pods=tuple(self.pods.values()),
            gangs=tuple(self.gangs.values()),
            budgets=tuple(self.budgets.values()),
            trees=tuple(self.trees.values()),
        )

    def rack_of(self, node_name: str) -> str:
        """The domain of the node in the default tree; an unknown node is a rack of its own."""
        for tree in self.trees.values():
            if tree.default:
                return next((tree.domains[at].name for name, at in tree.leaves if name == node_name), node_name)
        return node_name
