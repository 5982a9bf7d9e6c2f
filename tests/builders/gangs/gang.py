"""Vocabulary of test gangs: one value for a gang, whether it is written as manifests or as facts.

of(8, cpu=2).and_of(1, cpu=4).needing(5).non_strict(60).with_group("default/a", "default/b").with_priority(10)

builders.gangs.manifests renders gangs for the API, builders.gangs.facts for scenarios of the coordinator's core.
"""

from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

from muster.gangs.facts import (
    CompositeFacts,
    GangMode,
    LevelConstraint,
    LevelPolicy,
    MatchPolicy,
    RepairPolicy,
    SubgroupPolicy,
)
from muster.gangs.selectors import EVERYTHING_SELECTED

Dialect = Literal[
    "annotations",
    "koordinator",
    "coscheduling",
    "kube-batch",
    "volcano",
    "batch",
    "lightweight",
    "native",
    "kai",
    "kueue",
    "plain",
    "test",
]
ID_PREFIXES = {"annotations": "koordinator", "volcano": "kube-batch"}
"""First parts of gang ids, where they differ from the dialect."""
KOORDINATOR = "gang.scheduling.koordinator.sh/"


@dataclass(frozen=True)
class Gang:
    """A gang, or plain pods. Every method returns a changed copy.

    A renderer is a subclass. It names in `unsupported` the fields that it cannot express.
    """

    unsupported: ClassVar[tuple[str, ...]] = ()

    name: str
    dialect: Dialect = "annotations"
    namespace: str = "default"
    size: int = 1
    minimum: Any = None
    """None: the number of pods. Other values, also invalid ones, are written as they are."""
    requests: tuple[dict[str, str], ...] = ({"cpu": "1"},)
    """Requests of pod i: element i modulo the length."""

    mode: GangMode = GangMode.STRICT
    waiting_time_seconds: float = 0.0
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    repair_policy: RepairPolicy = RepairPolicy.YIELD
    group_names: tuple[str, ...] = ()
    """Gangs of its gang group, as "namespace/name"."""
    constraints: str = ""
    """Topology constraints as users write them: "rack: hard pack; node: spread"."""
    tree: str = ""
    """Topology tree of the constraints; empty: the default tree."""

    subgroups: tuple[SubgroupPolicy, ...] = ()
    """Policies for subgroups; pods have labels "subgroup" in turn."""
    parts: tuple[int, ...] = ()
    """Numbers of pods in each subgroup, in the order of pods; later pods are in none."""

    composites: tuple[CompositeFacts, ...] = ()
    """Sets of gangs that contain it, the outermost first."""

    priority: int | None = None
    declared_priority: int | None = None
    """Priority that its definition declares; None: that of its pods counts."""
    preempts: bool = True
    """False: the pods' preemption policy is Never."""
    declared_preempts: bool = True
    """False: the declaration forbids preemption, whatever the preemption policy of the pods."""
    budgets: tuple[str, ...] = ()
    """PodDisruptionBudgets that cover its pods, as "namespace/name"."""
    expected_seconds: float = 0.0
    """Declared duration of its pods."""
    evicted_whole: bool = False
    """Whether its definition allows eviction only as a whole."""
    """Whether pods that are created when none is left are a new start."""
    counts_succeeded: bool = False
    """Whether succeeded members count once the others cannot reach the minimum alone."""
    homogeneous: bool = False
    """Whether all its pods must be equal."""
    minimum_free_cpu: int = 0
    """Minimum resources: cpus that must be free in the whole cluster."""
    problem: str = ""
    """Blocking problem of its declaration."""
    created_seconds: int = 0
    incarnation: str = "1"

    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    selectors: dict[int, dict[str, str]] = field(default_factory=dict)
    """Additional node selectors of single pods, by number."""
    gates: tuple[str, ...] = ()
    storage_class: str = ""
    """Storage class of one volume claim per pod; empty: no claims."""
    ephemeral: bool = False
    """Whether the volumes are ephemeral."""
    spec: dict[str, Any] = field(default_factory=dict)
    """Additional fields of the pods' spec."""
    declared: dict[str, Any] = field(default_factory=dict)
    """Additional fields of the spec of its definition."""
    version: str = ""
    """API version of its definition; empty: the newest one."""

    # -- name and members

    def named(self, name: str) -> Self:
        return replace(self, name=name)

    def in_namespace(self, namespace: str) -> Self:
        return replace(self, namespace=namespace)

    def of(self, size: int, cpu: int | None = None) -> Self:
        """Sets the number of pods and, if given, the cpus that each requests."""
        sized = replace(self, size=size)
        return sized if cpu is None else sized.asking(cpu=cpu)

    def and_of(self, size: int, cpu: int = 1) -> Self:
        """Adds a role: pods that request this many cpus each."""
        requests = [self.requests[number % len(self.requests)] for number in range(self.size)]
        requests += [{"cpu": str(cpu)}] * size
        return replace(self, size=self.size + size, requests=tuple(requests))

    def needing(self, minimum: Any) -> Self:
        """Sets the minimum, valid or not."""
        return replace(self, minimum=minimum)

    def asking(self, *, memory: str = "", **amounts: int | str) -> Self:
        """Sets the requests of each pod; `gpu` is nvidia.com/gpu."""
        return self.asking_each({**amounts, **({"memory": memory} if memory else {})})

    def asking_each(self, *requests: dict[str, Any]) -> Self:
        """Sets the requests of the pods in turn, repeating from the start."""
        names = {"gpu": "nvidia.com/gpu"}
        written = tuple({names.get(name, name): str(amount) for name, amount in each.items()} for each in requests)
        return replace(self, requests=written)

    # -- rules of the gang

    def in_composites(self, *minimums: int, **levels: str) -> Self:
        """Sets that contain the gang, the outermost first: how many of their children must start together, by default
        as many as its group has gangs, their names, and the levels at which they share a domain.
        """
        needed = minimums or [len(self.group_names)] * len(levels)
        sets = zip(levels.items(), needed, strict=True)
        return replace(self, composites=tuple(CompositeFacts(name, "", level, least) for (name, level), least in sets))

    def in_subgroups(self, *sizes: int, size: int = 0, minimum: int = 0, rack: bool = True, tree: str = "") -> Self:
        """Divides the pods into subgroups of these sizes, by the label "subgroup"; each needs `size` pods, by default
        the largest of them, in one rack.
        """
        constraints = (LevelConstraint("rack", LevelPolicy.PACK, hard=True),) if rack else ()
        needed = size or max(sizes)
        policy = SubgroupPolicy("parts", EVERYTHING_SELECTED, ("subgroup",), needed, minimum, tree, constraints)
        return replace(self, subgroups=(policy,), parts=sizes, size=max(self.size, sum(sizes)))

    def non_strict(self, waiting_time_seconds: float = 600.0) -> Self:
        return replace(self, mode=GangMode.NON_STRICT, waiting_time_seconds=waiting_time_seconds)

    def with_match_policy(self, policy: MatchPolicy) -> Self:
        return replace(self, match_policy=policy)

    def with_repair_policy(self, policy: RepairPolicy) -> Self:
        return replace(self, repair_policy=policy)

    def with_group(self, *gangs: str) -> Self:
        """Sets the gang group: gangs as "namespace/name"."""
        return replace(self, group_names=gangs)

    def with_topology(self, constraints: str, tree: str = "") -> Self:
        """Sets topology constraints, as users write them: "rack: hard pack; node: spread"."""
        return replace(self, constraints=constraints, tree=tree)

    def with_priority(self, priority: int) -> Self:
        return replace(self, priority=priority)

    def never_preempting(self) -> Self:
        """Sets the pods' preemption policy Never."""
        return replace(self, preempts=False)

    def declaring_no_preemption(self) -> Self:
        return replace(self, declared_preempts=False)

    def with_budget(self, name: str) -> Self:
        """Adds a PodDisruptionBudget ("namespace/name") that covers its pods."""
        return replace(self, budgets=tuple(sorted((*self.budgets, name))))

    def running_for(self, seconds: float) -> Self:
        """Sets the duration that its pods declare."""
        return replace(self, expected_seconds=seconds)

    def evicted_as_a_whole(self) -> Self:
        return replace(self, evicted_whole=True)

    def counting_succeeded(self) -> Self:
        return replace(self, counts_succeeded=True)

    def of_equal_pods(self) -> Self:
        return replace(self, homogeneous=True)

    def needing_free_cpu(self, cpu: int) -> Self:
        return replace(self, minimum_free_cpu=cpu)

    def broken(self, message: str) -> Self:
        """Gives its declaration a blocking problem; an empty message removes it."""
        return replace(self, problem=message)

    # -- its objects

    def created(self, seconds: int) -> Self:
        return replace(self, created_seconds=seconds)

    def recreated(self, incarnation: str) -> Self:
        """Sets the incarnation of its definition and pods."""
        return replace(self, incarnation=incarnation)

    def declared_by(self, dialect: Dialect) -> Self:
        return replace(self, dialect=dialect)

    def annotated(self, **annotations: str) -> Self:
        """Adds Koordinator's annotations by their last part, with _ for -: mode="Strict", total_number="4"."""
        named = {KOORDINATOR + key.replace("_", "-"): value for key, value in annotations.items()}
        return replace(self, annotations={**self.annotations, **named})

    def marked(self, annotations: dict[str, str]) -> Self:
        """Adds annotations by their full keys."""
        return replace(self, annotations={**self.annotations, **annotations})

    def labelled(self, **labels: str) -> Self:
        """Adds labels to its pods."""
        return replace(self, labels={**self.labels, **labels})

    def gated(self, *gates: str) -> Self:
        return replace(self, gates=gates)

    def with_claims(self, storage_class: str) -> Self:
        """Gives every pod a claim of that storage class."""
        return replace(self, storage_class=storage_class)

    def with_scratch(self, storage_class: str) -> Self:
        """Gives every pod an ephemeral volume of that storage class."""
        return replace(self, storage_class=storage_class, ephemeral=True)

    def with_spec(self, **fields: Any) -> Self:
        """Adds fields to the pods' spec."""
        return replace(self, spec={**self.spec, **fields})

    def declaring(self, **fields: Any) -> Self:
        """Adds fields to the PodGroup's spec."""
        return replace(self, declared={**self.declared, **fields})

    def of_version(self, version: str) -> Self:
        """Sets the API version of the PodGroup."""
        return replace(self, version=version)

    def on_nodes(self, **labels: str) -> Self:
        """Adds a node selector to all pods."""
        return replace(self, node_selector={**self.node_selector, **labels})

    def pod_on_nodes(self, number: int, **labels: str) -> Self:
        """Adds a node selector to one pod."""
        return replace(self, selectors={**self.selectors, number: labels})

    # -- read by every renderer

    @property
    def id(self) -> str:
        """The gang's id; for plain pods that of the first pod."""
        prefix = ID_PREFIXES.get(self.dialect, self.dialect)
        return f"{prefix}/{self.namespace}/{self.pod_name(0) if self.dialect == 'plain' else self.name}"

    @property
    def needed(self) -> int:
        """The number of pods that must start together; the size if the minimum is invalid."""
        return self.minimum if isinstance(self.minimum, int) and self.minimum > 0 else self.size

    def pod_name(self, number: int) -> str:
        return f"{self.name}-{number}"

    def check_supported(self) -> None:
        """Raises if a field is set that the renderer cannot express."""
        for name in self.unsupported:
            if getattr(self, name) != _DEFAULTS[name]:
                raise ValueError(f"gang {self.name}: {type(self).__name__} cannot express {name}")


_DEFAULTS = {
    each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in fields(Gang)
}
