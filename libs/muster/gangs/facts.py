"""Facts about the cluster as values: the fields are those of muster.clusterstate.v1."""

from enum import IntEnum
from typing import Final

from msgspec import Struct

from muster.gangs.selectors import LabelSelector, LabelSet, NamespaceFacts, PodSelector

PODS: Final = "pods"
"""The resource of which every pod requests 1."""

POD_REVISIONS: Final = "pods"
NODE_REVISIONS: Final = "nodes"
"""Names of pods and nodes in revisions."""
TREE_REVISIONS: Final = "topologytrees"
"""Name in revisions of the nodes up to which topology trees are computed: that happens at intervals."""

Amounts = tuple[tuple[str, int], ...]
"""Amounts by resource name, sorted by name. cpu in millicores, memory and storage in bytes, others in units."""


class TaintEffect(IntEnum):
    """Taint effects; numbers as in the contract."""

    NONE = 0
    NO_SCHEDULE = 1
    PREFER_NO_SCHEDULE = 2
    NO_EXECUTE = 3


class NodeOperator(IntEnum):
    """Operators of node requirements; numbers as in the contract."""

    IN = 1
    NOT_IN = 2
    EXISTS = 3
    DOES_NOT_EXIST = 4
    GT = 5
    LT = 6


class TolerationOperator(IntEnum):
    """Operators of tolerations; numbers as in the contract."""

    EQUAL = 1
    EXISTS = 2


class PodPhase(IntEnum):
    """status.phase; numbers as in the contract."""

    UNSPECIFIED = 0
    PENDING = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4

    @property
    def ended(self) -> bool:
        """The pod uses no capacity any more."""
        return self >= PodPhase.SUCCEEDED


class GangMode(IntEnum):
    """Whether a gang holds capacity between attempts; numbers as in the contract."""

    STRICT = 1
    NON_STRICT = 2


class MatchPolicy(IntEnum):
    """Members that count toward the minimum after a gang has started once; numbers as in the contract."""

    ONCE_SATISFIED = 1
    WAITING_AND_RUNNING = 2
    ONLY_WAITING = 3


class RepairPolicy(IntEnum):
    """Treatment of a started gang that cannot be completed in time; numbers as in the contract."""

    WAIT = 1
    EVICT = 2
    YIELD = 3


class LevelPolicy(IntEnum):
    """Distribution of members over the domains of a level; numbers as in the contract."""

    PACK = 1
    SPREAD = 2
    PARTITION = 3
    RANGE = 4
    FACTOR = 5


class Severity(IntEnum):
    """Severity of a problem of a declaration; numbers as in the contract."""

    BLOCKING = 1
    WARNING = 2


class NodeRequirement(Struct, frozen=True, gc=False):
    """Compares one label or field of a node."""

    key: str
    operator: NodeOperator
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True, gc=False):
    """Matches a node if all requirements do; a term without requirements matches no node."""

    labels: tuple[NodeRequirement, ...] = ()
    fields: tuple[NodeRequirement, ...] = ()


class PreferredNodeTerm(Struct, frozen=True, gc=False):
    """A preferred node affinity term, weight 1 to 100."""

    weight: int
    term: NodeSelectorTerm


class Toleration(Struct, frozen=True, gc=False):
    """A toleration; effect NONE covers all effects, an empty key with EXISTS every taint."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect = TaintEffect.NONE


class Taint(Struct, frozen=True, gc=False):
    """A taint of a node."""

    key: str
    value: str
    effect: TaintEffect


class PodTerm(Struct, frozen=True, gc=False):
    """Pods that a selector (by id) selects, in the domain of nodes with the same value of a label."""

    selector: str
    topology_key: str


class PreferredPodTerm(Struct, frozen=True, gc=False):
    """A preferred pod affinity term, weight 1 to 100, or anti-affinity term, weight -100 to -1."""

    weight: int
    term: PodTerm


class SpreadConstraint(Struct, frozen=True, gc=False):
    """One of spec.topologySpreadConstraints; `hard` is DoNotSchedule."""

    max_skew: int
    topology_key: str
    selector: str
    hard: bool = True
    min_domains: int = 1
    ignores_node_affinity: bool = False
    honors_taints: bool = False


class HostPort(Struct, frozen=True, gc=False):
    """A port of the node; ip "0.0.0.0" conflicts with every other."""

    protocol: str
    ip: str
    port: int


class ExtendedRequest(Struct, frozen=True, gc=False):
    """A container's request for an extended resource. `request`: the name of a claim's request that stands for it;
    `index`: that of the container among all; `starts`: an init container that ends before the others start.
    """

    container: str
    resource: str
    request: str
    index: int
    amount: int
    starts: bool = False


class PodClass(Struct, frozen=True, gc=False):
    """Properties of a pod that matter to placement, except its labels. `id` is a hash of the others.

    `volumes`: node selector terms of each volume; every volume needs a matching term. `shared_claims`: required
    affinity to the pods that share a ResourceClaim, each term a rule of its own. `label_set` is never part of the
    stream: the id of the label set of a role's members, in a class that stands for the role (`kind_id`).
    """

    id: str
    requests: Amounts = ((PODS, 1),)
    node_selector: tuple[tuple[str, str], ...] = ()
    required_node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_node_affinity: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    required_pod_affinity: tuple[PodTerm, ...] = ()
    required_pod_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pod_affinity: tuple[PreferredPodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    label_set: str = ""
    extended: tuple[ExtendedRequest, ...] = ()
    shared_claims: tuple[PodTerm, ...] = ()


_KIND_DELIMITER: Final = "@"  # never part of a hash


def kind_id(class_id: str, label_set: str) -> str:
    """Id of pods of one class with labels that the same selectors select: the class, and one of their label sets.

    The class id alone if `label_set` is empty: no selector can select the pods.
    """
    return f"{class_id}{_KIND_DELIMITER}{label_set}" if label_set else class_id


def split_kind(kind: str) -> tuple[str, str]:
    """Class id and label set id of a kind."""
    class_id, _, label_set = kind.partition(_KIND_DELIMITER)
    return class_id, label_set


class NodeFacts(Struct, frozen=True, gc=False):
    """A node. `device_backed`: extended resources that it offers as devices of a DeviceClass."""

    name: str
    uid: str = ""
    revision: int = 0
    allocatable: Amounts = ()
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    device_backed: tuple[str, ...] = ()


LEADER: Final = 1
"""Ordinal of a gang's leader."""
INDEX_0: Final = 2
"""Ordinal of the pod with index 0."""


class PodFacts(Struct, frozen=True, gc=False):  # up to 100,000, and never part of a reference cycle
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
    wanted_rank: int = -1
    """Rank that it asks for within its gang; -1: none."""
    label_set: str = ""
    scheduler_name: str = ""
    """Of a pod that is not ours."""
    deletion_cost: int = 0
    """Of a gang's surplus, pods with lower costs are evicted first."""
    ordinal: int = 0
    """Position within its gang as its controller counts: 0 unknown, LEADER, or index + INDEX_0."""
    uncontrolled: bool = False
    """A member of a gang that nobody would recreate."""
    nominated_node: str = ""
    """status.nominatedNodeName while it is not bound, if it is ours."""
    device_claims: tuple[str, ...] = ()
    """Names of its ResourceClaims while it is not bound, if it is ours."""
    group_claims: tuple[str, ...] = ()
    """Names of the ResourceClaims among them that are reserved for its PodGroup instead of the pod."""
    group_name: str = ""
    """The PodGroup; empty without such claims."""
    group_uid: str = ""

    @property
    def seated(self) -> bool:
        """The pod uses capacity of a node."""
        return bool(self.node) and not self.phase.ended


class ObjectReference(Struct, frozen=True, gc=False):
    """Names a Kubernetes object."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


OTHER_SCHEDULER: Final = "OtherSchedulerName"
"""Reason of the warning that pods with the marks of a gang have the schedulerName of another scheduler."""


class Problem(Struct, frozen=True, gc=False):
    """A mistake in a declaration, described for the user; values are quoted.

    `reason`: that of the condition of pods that wait because of it; "": InvalidDeclaration. `about`: the object on
    which it is reported; None: the one that defines the gang or tree.
    """

    severity: Severity
    message: str
    reason: str = ""
    about: ObjectReference | None = None


OTHER_LEVELS: Final = "*"
"""In place of a level's name: every level of the tree without another constraint of the gang."""


class LevelConstraint(Struct, frozen=True, gc=False):
    """Distribution of a gang's members over the domains of a level.

    `count` belongs to partition and factor, `minimum` and `maximum` to range. An `optional` constraint is ignored if
    the tree does not have the level.
    """

    level: str
    policy: LevelPolicy
    hard: bool = False
    count: int = 0
    minimum: int = 0
    maximum: int = 0
    optional: bool = False


class SubgroupPolicy(Struct, frozen=True, gc=False):
    """Divides members of a gang into subgroups: those that `labels` selects, one subgroup for each combination of
    values of the labels `keys`, which all of them have.

    A subgroup starts with at least `size` members, or not. `minimum` subgroups must start together; 0: as many as the
    minimum of the gang needs. `tree` and `constraints` are those of each subgroup.
    """

    name: str
    labels: LabelSelector
    keys: tuple[str, ...] = ()
    size: int = 1
    minimum: int = 0
    tree: str = ""
    constraints: tuple[LevelConstraint, ...] = ()


class CompositeFacts(Struct, frozen=True, gc=False):
    """A set of gangs and further sets that contains the gang: at least `minimum` of these start together. `name` is
    "namespace/name".

    All members below it share one domain of `level` of `tree`; without a level they need not.
    """

    name: str
    tree: str = ""
    level: str = ""
    minimum: int = 1


class GangFacts(Struct, frozen=True, gc=False):
    """A gang as users declared it, in the same form for all dialects.

    `terms`: the declaration in the user's own words. `counts_succeeded`: succeeded members count toward the minimum
    once the others cannot reach it alone. `uniform`: all pods must have the same requirements for a node. `resources`
    must be free in the whole cluster before the gang is tried. `never_preempts`: nothing is evicted for the gang,
    whatever the preemption policy of its pods. `evicted_whole`: preemption evicts all of its pods or none, even if it
    can spare some. `subgroups`: the first policy that selects a member decides its subgroup.
    `composites`: the sets that contain the gang, the outermost first; all gangs of that one are in `group`.
    `independent`: its pods start and run one by one; none of them is surplus.
    `creation_failure`: why its controller cannot create the members that it lacks; it names what is in the gang's
    namespace, so it is not for readers of others.
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
    repair_policy: RepairPolicy = RepairPolicy.YIELD
    tree: str = ""
    constraints: tuple[LevelConstraint, ...] = ()
    terms: tuple[str, ...] = ()
    counts_succeeded: bool = False
    uniform: bool = False
    resources: Amounts = ()
    never_preempts: bool = False
    evicted_whole: bool = False
    subgroups: tuple[SubgroupPolicy, ...] = ()
    composites: tuple[CompositeFacts, ...] = ()
    independent: bool = False
    creation_failure: str = ""

    @property
    def named_trees(self) -> list[str]:
        """The topology trees of its constraints, its subgroups' and its composites'; "" is the default one."""
        own = [self.tree] if self.constraints or self.tree else []
        if not (self.subgroups or self.composites):
            return own
        return [*own, *[each.tree for each in self.subgroups], *[each.tree for each in self.composites if each.level]]

    @property
    def blocked(self) -> bool:
        """The declaration must be corrected before the gang can be tried."""
        return bool(self.problems) and any(problem.severity is Severity.BLOCKING for problem in self.problems)

    @property
    def starts_whole(self) -> bool:
        """The gang is placed whole or not at all: it is Strict, or it declares what holds for the whole only:
        subgroups, composites, or a hard constraint.
        """
        if self.mode is not GangMode.NON_STRICT or self.subgroups or self.composites:
            return True
        return any(each.hard for each in self.constraints)


class StaticVolume(Struct, frozen=True):
    """A free volume of a storage class without provisioner. `region`: a node must match one term of each entry to use
    it; `claim`: "namespace/name" of the only claim that may have it, empty: any.
    """

    name: str
    storage_class: str
    size_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    region: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    claim: str = ""


class StaticClaim(Struct, frozen=True):
    """An unbound claim for such a volume, which pods use. `id` is "namespace/name"."""

    id: str
    storage_class: str
    size_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"

    def fits(self, volume: StaticVolume) -> bool:
        """The volume is what the claim asks for."""
        return (
            volume.storage_class == self.storage_class
            and volume.volume_mode == self.volume_mode
            and volume.size_bytes >= self.size_bytes
            and set(self.access_modes) <= set(volume.access_modes)
            and volume.claim in ("", self.id)
        )


class DisruptionBudget(Struct, frozen=True, gc=False):
    """A PodDisruptionBudget; `allowed` pods may be evicted now. `id` is "namespace/name"."""

    id: str
    allowed: int


class TreeLevel(Struct, frozen=True, gc=False):
    """A level of a topology tree. With a label key, the domains are the values of that label."""

    name: str
    label_key: str = ""


class TreeDomain(Struct, frozen=True, gc=False):
    """A listed domain: `level` is an index into the tree's levels, `parent` one into its domains, -1 at the top."""

    name: str
    level: int
    parent: int = -1


class TopologyTree(Struct, frozen=True, gc=False):
    """A topology tree. `levels` are from the top to the nodes; the last is the level of the nodes themselves.

    `domains` and `leaves` (node name, index of its domain, -1 directly below the root) are set if domains are listed,
    and empty if they are read from labels.
    """

    name: str
    levels: tuple[TreeLevel, ...] = (TreeLevel("node"),)
    domains: tuple[TreeDomain, ...] = ()
    leaves: tuple[tuple[str, int], ...] = ()
    default: bool = False
    definition: ObjectReference | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of its levels, from the top."""
        return tuple([level.name for level in self.levels])


class DeviceObjectKind(IntEnum):
    """Kinds of device objects; numbers as in the contract."""

    SLICE = 1
    CLASS = 2
    CLAIM = 3


class DeviceObject(Struct, frozen=True, gc=False):
    """A ResourceSlice, DeviceClass or ResourceClaim ("namespace/name"). `content`: its facts (muster.devices.facts) as
    JSON, which only those decode who choose devices; empty: it was removed.
    """

    kind: DeviceObjectKind
    name: str
    content: bytes = b""


class Batch(Struct, frozen=True, gc=False):
    """A delta, a snapshot, or part of one: of every object only the newest state.

    `changed`: highest resourceVersion by kind among the changes, which other services can be asked to reach; in a
    snapshot, of the changes on which its trees depend. `through`: resourceVersions by kind up to which all changes are
    included.
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
    removed_pod_classes: tuple[str, ...] = ()
    selectors: tuple[PodSelector, ...] = ()
    removed_selectors: tuple[str, ...] = ()
    label_sets: tuple[LabelSet, ...] = ()
    removed_label_sets: tuple[str, ...] = ()
    namespaces: tuple[NamespaceFacts, ...] = ()
    removed_namespaces: tuple[str, ...] = ()
    static_volumes: tuple[StaticVolume, ...] = ()
    removed_static_volumes: tuple[str, ...] = ()
    static_claims: tuple[StaticClaim, ...] = ()
    removed_static_claims: tuple[str, ...] = ()
    device_objects: tuple[DeviceObject, ...] = ()
