"""What is known of the cluster, as values: the same facts that muster.clusterstate.v1 carries between services."""

from enum import IntEnum
from typing import Final

from msgspec import Struct

PODS: Final = "pods"
"""The resource that every pod asks one of."""

POD_REVISIONS: Final = "pods"
NODE_REVISIONS: Final = "nodes"
"""Names of these kinds in revisions."""

Amounts = tuple[tuple[str, int], ...]
"""Amounts by resource name, sorted by name. cpu in millicores, memory and storage in bytes, others in units."""


class TaintEffect(IntEnum):
    """Taint effects; values as in the proto."""

    NONE = 0
    NO_SCHEDULE = 1
    PREFER_NO_SCHEDULE = 2
    NO_EXECUTE = 3


class NodeOperator(IntEnum):
    """Operators of node requirements; values as in the proto."""

    IN = 1
    NOT_IN = 2
    EXISTS = 3
    DOES_NOT_EXIST = 4
    GT = 5
    LT = 6


class TolerationOperator(IntEnum):
    """Operators of tolerations; values as in the proto."""

    EQUAL = 1
    EXISTS = 2


class PodPhase(IntEnum):
    """status.phase; values as in the proto."""

    UNSPECIFIED = 0
    PENDING = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4

    @property
    def ended(self) -> bool:
        """The pod holds no room any more."""
        return self >= PodPhase.SUCCEEDED


class GangMode(IntEnum):
    """How a gang starts; values as in the proto."""

    STRICT = 1
    NON_STRICT = 2


class MatchPolicy(IntEnum):
    """What counts toward the minimum after a gang has started once; values as in the proto."""

    ONCE_SATISFIED = 1
    WAITING_AND_RUNNING = 2
    ONLY_WAITING = 3


class RepairPolicy(IntEnum):
    """What happens to a started gang that cannot be completed in time; values as in the proto."""

    WAIT = 1
    EVICT = 2


class LevelPolicy(IntEnum):
    """How members are divided over the domains of a level; values as in the proto."""

    PACK = 1
    SPREAD = 2
    PARTITION = 3
    RANGE = 4
    FACTOR = 5


class Severity(IntEnum):
    """How bad a problem of a declaration is; values as in the proto."""

    BLOCKING = 1
    WARNING = 2


class NodeRequirement(Struct, frozen=True):
    """Compares one label or field of a node."""

    key: str
    operator: NodeOperator
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True):
    """Matches a node if all requirements do; without any it matches no node."""

    labels: tuple[NodeRequirement, ...] = ()
    fields: tuple[NodeRequirement, ...] = ()


class PreferredNodeTerm(Struct, frozen=True):
    """A wish for a node, weight 1 to 100."""

    weight: int
    term: NodeSelectorTerm


class Toleration(Struct, frozen=True):
    """A toleration; effect NONE covers all effects, an empty key with EXISTS every taint."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect = TaintEffect.NONE


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str
    value: str
    effect: TaintEffect


class PodTerm(Struct, frozen=True):
    """Pods that a selector (by id) selects, in the domain of nodes with the same value of a label."""

    selector: str
    topology_key: str


class PreferredPodTerm(Struct, frozen=True):
    """A wish for the company of pods, weight 1 to 100, or against it, weight -100 to -1."""

    weight: int
    term: PodTerm


class SpreadConstraint(Struct, frozen=True):
    """One of spec.topologySpreadConstraints; `hard` is DoNotSchedule, the other policies at their defaults."""

    max_skew: int
    topology_key: str
    selector: str
    hard: bool = True
    min_domains: int = 1
    ignores_node_affinity: bool = False
    honors_taints: bool = False


class HostPort(Struct, frozen=True):
    """A port of the node; ip "0.0.0.0" conflicts with every other."""

    protocol: str
    ip: str
    port: int


class PodClass(Struct, frozen=True):
    """Everything about a pod that matters to placement. `id` is a hash of the rest.

    `selected_by`: ids of selectors that select its pods, sorted. `volumes`: one requirement each, all must match.
    """

    id: str
    requests: Amounts = ((PODS, 1),)
    node_selector: tuple[tuple[str, str], ...] = ()
    required_node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_node_affinity: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    selected_by: tuple[str, ...] = ()
    required_pod_affinity: tuple[PodTerm, ...] = ()
    required_pod_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pod_affinity: tuple[PreferredPodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()


class NodeFacts(Struct, frozen=True):
    """A node."""

    name: str
    uid: str = ""
    revision: int = 0
    allocatable: Amounts = ()
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True


class PodFacts(Struct, frozen=True, gc=False):  # there are 100,000 of them, and no cycles through them
    """A pod on a node, or one that has a scheduler name of ours."""

    uid: str
    namespace: str
    name: str
    class_id: str
    revision: int = 0
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    priority: int = 0
    created_seconds: int = 0
    ours: bool = True
    gang: str = ""
    deleting: bool = False
    gated: bool = False
    problem: str = ""
    timed_out: bool = False
    never_preempts: bool = False
    expected_seconds: float = 0.0
    started_seconds: int = 0
    budgets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def seated(self) -> bool:
        """The pod holds room on a node."""
        return bool(self.node) and not self.phase.ended


class ObjectReference(Struct, frozen=True):
    """Names a Kubernetes object."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class Problem(Struct, frozen=True):
    """Something wrong with a declaration, in words for the user; values are quoted."""

    severity: Severity
    message: str


OTHER_LEVELS: Final = "*"
"""In place of a level's name: every level of the tree that no other constraint of the gang is on."""


class LevelConstraint(Struct, frozen=True):
    """How a gang's members are divided over the domains of a level. `count` is that of partition and factor, `minimum`
    and `maximum` are those of range. An `optional` one asks nothing where the tree has no such level.
    """

    level: str
    policy: LevelPolicy
    hard: bool = False
    count: int = 0
    minimum: int = 0
    maximum: int = 0
    optional: bool = False


class GangFacts(Struct, frozen=True):
    """What users declared of pods that belong together, in one form whatever the dialect.

    `terms` are the user's own words. `counts_succeeded`: members that succeeded count toward the minimum once those
    that are left cannot reach it alone. `uniform`: all its pods must ask the same of a node. `resources` must be free
    in the whole cluster before it is tried. `never_preempts`: nothing is evicted for it, whatever its pods say.
    `evicted_whole`: others may have it evicted only whole, even if it can spare a pod. `starts_anew`: when none of its
    pods is left that may run or has succeeded, pods that come then are a new start, as a whole.
    """

    id: str
    dialect: str
    namespace: str
    name: str
    incarnation: str = ""
    minimum: int = 0
    total: int = 0
    mode: GangMode = GangMode.STRICT
    group: tuple[str, ...] = ()
    waiting_time_seconds: float = 0.0
    priority: int | None = None
    created_seconds: int = 0
    definition: ObjectReference | None = None
    problems: tuple[Problem, ...] = ()
    match_policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    repair_policy: RepairPolicy = RepairPolicy.WAIT
    tree: str = ""
    constraints: tuple[LevelConstraint, ...] = ()
    terms: tuple[str, ...] = ()
    counts_succeeded: bool = False
    uniform: bool = False
    resources: Amounts = ()
    never_preempts: bool = False
    evicted_whole: bool = False
    starts_anew: bool = False

    @property
    def blocked(self) -> bool:
        """The declaration must be mended before the gang can be tried."""
        return any(problem.severity is Severity.BLOCKING for problem in self.problems)

    @property
    def starts_whole(self) -> bool:
        """It is placed whole or not at all: it says so, or must have a shape, which no part of it tells."""
        return self.mode is not GangMode.NON_STRICT or any(each.hard for each in self.constraints)


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget: how many of its pods may be evicted now. `id` is "namespace/name"."""

    id: str
    allowed: int


class TreeLevel(Struct, frozen=True):
    """A level of a topology tree. With a label key, domains are the values of that label."""

    name: str
    label_key: str = ""


class TreeDomain(Struct, frozen=True):
    """A listed domain: `level` is an index into the tree's levels, `parent` one into its domains, -1 at the top."""

    name: str
    level: int
    parent: int = -1


class TopologyTree(Struct, frozen=True):
    """Which nodes are near which. `levels` go from the top to the nodes; the last is that of the nodes themselves.

    `domains` and `leaves` (node name, index of its domain, -1 right below the root) are there if domains are listed,
    and not if they are read from labels.
    """

    name: str
    levels: tuple[TreeLevel, ...] = (TreeLevel("node"),)
    domains: tuple[TreeDomain, ...] = ()
    leaves: tuple[tuple[str, int], ...] = ()
    default: bool = False
    definition: ObjectReference | None = None
    problems: tuple[Problem, ...] = ()


class Batch(Struct, frozen=True):
    """Changes that belong together; of every object only the newest state.

    `changed`: highest resourceVersion per kind among these changes, what others may be asked to have reached.
    `through`: everything up to here is included.
    """

    pod_classes: tuple[PodClass, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    removed_nodes: tuple[str, ...] = ()
    pods: tuple[PodFacts, ...] = ()
    removed_pods: tuple[str, ...] = ()
    gangs: tuple[GangFacts, ...] = ()
    removed_gangs: tuple[str, ...] = ()
    changed: dict[str, int] = {}
    through: dict[str, int] = {}
    budgets: tuple[DisruptionBudget, ...] = ()
    removed_budgets: tuple[str, ...] = ()
    trees: tuple[TopologyTree, ...] = ()
    removed_trees: tuple[str, ...] = ()
