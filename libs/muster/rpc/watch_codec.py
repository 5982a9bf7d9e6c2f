"""The Watch stream as messages and back: steps, batches and facts.

Most of the objects are pods, so their codec is optimised: 1 to 2 us each way. Unset fields are decoded as the contract
says; unknown enum values of a newer sender are decoded like "unspecified".
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import (
    Batch,
    DeviceObject,
    DeviceObjectKind,
    DisruptionBudget,
    GangFacts,
    GangMode,
    LevelConstraint,
    MatchPolicy,
    NodeFacts,
    ObjectReference,
    PodFacts,
    PodPhase,
    Problem,
    RepairPolicy,
    Severity,
    SubgroupPolicy,
    Taint,
    TaintEffect,
    TopologyTree,
)
from muster.rpc.pod_class_codec import (
    EFFECTS,
    decode_amounts,
    decode_pod_class,
    encode_amounts,
    encode_pod_class,
    number,
)
from muster.rpc.selector_codec import (
    decode_label_set,
    decode_namespace,
    decode_selector,
    encode_label_set,
    encode_namespace,
    encode_selector,
)
from muster.rpc.static_volume_codec import (
    decode_static_claim,
    decode_static_volume,
    encode_static_claim,
    encode_static_volume,
)
from muster.rpc.subgroup_codec import decode_composite, decode_subgroups, encode_composite, encode_subgroups
from muster.rpc.topology_codec import UnknownPolicy, decode_constraint, decode_tree, encode_constraint, encode_tree

_MODES: Final = {mode.value: mode for mode in GangMode}
_MATCH_POLICIES: Final = {policy.value: policy for policy in MatchPolicy}
_REPAIR_POLICIES: Final = {policy.value: policy for policy in RepairPolicy}
_PHASES: Final = {phase.value: phase for phase in PodPhase}
_SEVERITIES: Final = {severity.value: severity for severity in Severity}
_DEVICE_OBJECT_KINDS: Final = frozenset(kind.value for kind in DeviceObjectKind)

_INT32_MAX: Final = 2**31 - 1
_intern = sys.intern  # names that many pods share are stored once and compare by identity


# -- steps of the stream


def snapshot_begin_step(reason: str) -> pb.WatchResponse:
    """The step that begins a snapshot; `reason` is for the subscriber's log."""
    return pb.WatchResponse(snapshot_begin=pb.SnapshotBegin(reason=reason))


def batch_step(batch: Batch) -> pb.WatchResponse:
    """Part of a snapshot, or a delta."""
    return pb.WatchResponse(batch=encode_batch(batch))


def synced_step(through: Mapping[str, int]) -> pb.WatchResponse:
    """The step that ends a snapshot, which is complete up to these resourceVersions by kind."""
    return pb.WatchResponse(synced=pb.Synced(through=encode_revision(through)))


# -- batches and revisions


def encode_batch(batch: Batch) -> pb.Batch:
    """A batch as a message."""
    message = pb.Batch(
        pod_classes=map(encode_pod_class, batch.pod_classes),
        nodes=map(encode_node, batch.nodes),
        removed_nodes=batch.removed_nodes,
        removed_pods=batch.removed_pods,
        gangs=map(encode_gang, batch.gangs),
        removed_gangs=batch.removed_gangs,
        budgets=map(encode_budget, batch.budgets),
        removed_budgets=batch.removed_budgets,
        trees=map(encode_topology_tree, batch.trees),
        removed_trees=batch.removed_trees,
        removed_pod_classes=batch.removed_pod_classes,
        selectors=map(encode_selector, batch.selectors),
        removed_selectors=batch.removed_selectors,
        label_sets=map(encode_label_set, batch.label_sets),
        removed_label_sets=batch.removed_label_sets,
        namespaces=map(encode_namespace, batch.namespaces),
        removed_namespaces=batch.removed_namespaces,
        static_volumes=map(encode_static_volume, batch.static_volumes),
        removed_static_volumes=batch.removed_static_volumes,
        static_claims=map(encode_static_claim, batch.static_claims),
        removed_static_claims=batch.removed_static_claims,
        device_objects=map(encode_device_object, batch.device_objects),
    )
    add = message.pods.add
    for pod in batch.pods:
        _fill_pod(add(), pod)
    if batch.changed:
        message.changed.kinds.update(batch.changed)
    if batch.through:
        message.through.kinds.update(batch.through)
    return message


def encode_topology_tree(tree: TopologyTree) -> pb.TopologyTree:
    """A topology tree as a message."""
    return encode_tree(tree, encode_reference, encode_problem)


def decode_batch(message: pb.Batch) -> Batch:
    """The batch that a message carries."""
    return Batch(
        tuple(map(decode_pod_class, message.pod_classes)),
        tuple(map(decode_node, message.nodes)),
        tuple(message.removed_nodes),
        tuple(map(decode_pod, message.pods)),
        tuple(message.removed_pods),
        tuple(map(decode_gang, message.gangs)),
        tuple(message.removed_gangs),
        decode_revision(message.changed),
        decode_revision(message.through),
        tuple(map(decode_budget, message.budgets)),
        tuple(message.removed_budgets),
        tuple(decode_tree(tree, decode_reference, decode_problem) for tree in message.trees),
        tuple(message.removed_trees),
        tuple(message.removed_pod_classes),
        tuple(map(decode_selector, message.selectors)),
        tuple(message.removed_selectors),
        tuple(map(decode_label_set, message.label_sets)),
        tuple(message.removed_label_sets),
        tuple(map(decode_namespace, message.namespaces)),
        tuple(message.removed_namespaces),
        tuple(map(decode_static_volume, message.static_volumes)),
        tuple(message.removed_static_volumes),
        tuple(map(decode_static_claim, message.static_claims)),
        tuple(message.removed_static_claims),
        tuple(decode_device_object(each) for each in message.device_objects if each.kind in _DEVICE_OBJECT_KINDS),
    )


def encode_device_object(each: DeviceObject) -> pb.DeviceObject:
    """A device object as a message."""
    return pb.DeviceObject(kind=pb.DeviceObject.Kind.ValueType(each.kind), name=each.name, content=each.content)


def decode_device_object(message: pb.DeviceObject) -> DeviceObject:
    """The device object that a message of a known kind carries."""
    return DeviceObject(DeviceObjectKind(message.kind), message.name, message.content)


def encode_revision(kinds: Mapping[str, int]) -> pb.Revision:
    """Highest resourceVersion per kind as a message."""
    return pb.Revision(kinds=kinds)


def decode_revision(message: pb.Revision) -> dict[str, int]:
    """Highest resourceVersion per kind."""
    return dict(message.kinds)


# -- pods


def encode_pod(pod: PodFacts) -> pb.Pod:
    """A pod as a message."""
    message = pb.Pod()
    _fill_pod(message, pod)
    return message


def _fill_pod(message: pb.Pod, pod: PodFacts) -> None:
    """Set only fields that differ from their default, which most do not."""
    message.uid = pod.uid
    message.namespace = pod.namespace
    message.name = pod.name
    message.class_id = pod.class_id
    message.revision = pod.revision
    phase: Any = pod.phase
    message.phase = phase
    if pod.node:
        message.node = pod.node
    if pod.priority:
        message.priority = pod.priority
    if pod.created_seconds:
        message.created_seconds = pod.created_seconds
    if pod.ours:
        message.ours = True
    if pod.gang:
        message.gang = pod.gang
    if pod.deleting:
        message.deleting = True
    if pod.gated:
        message.gated = True
    if pod.problem:
        message.problem = pod.problem
    if pod.timed_out:
        message.timed_out = True
    if pod.never_preempts:
        message.never_preempts = True
    if pod.expected_seconds:
        message.expected_seconds = pod.expected_seconds
    if pod.started_seconds:
        message.started_seconds = pod.started_seconds
    if pod.budgets:
        message.budgets.extend(pod.budgets)
    if pod.claims:
        message.claims.extend(pod.claims)
    if pod.wanted_rank >= 0:
        message.wanted_rank = pod.wanted_rank
    if pod.label_set:
        message.label_set = pod.label_set
    if pod.scheduler_name:
        message.scheduler_name = pod.scheduler_name
    if pod.deletion_cost:
        message.deletion_cost = pod.deletion_cost
    if pod.ordinal:
        message.ordinal = pod.ordinal
    if pod.uncontrolled:
        message.uncontrolled = True
    if pod.nominated_node:
        message.nominated_node = pod.nominated_node
    if pod.device_claims:
        message.device_claims.extend(pod.device_claims)
    if pod.group_claims:
        message.group_claims.extend(pod.group_claims)
        message.group_name, message.group_uid = pod.group_name, pod.group_uid


def decode_pod(message: pb.Pod) -> PodFacts:
    """The pod that a message carries."""
    budgets, claims, ours = message.budgets, message.claims, message.ours
    return PodFacts(
        message.uid,
        _intern(message.namespace),
        message.name,
        _intern(message.class_id),
        message.revision,
        _intern(message.node),
        _PHASES.get(message.phase, PodPhase.UNSPECIFIED),
        message.priority,
        message.created_seconds,
        ours,
        _intern(message.gang),
        message.deleting,
        message.gated,
        message.problem,
        message.timed_out,
        message.never_preempts,
        message.expected_seconds or 0.0,  # shares one 0.0
        message.started_seconds,
        tuple(map(_intern, budgets)) if budgets else (),
        tuple(claims) if claims else (),
        message.wanted_rank if message.HasField("wanted_rank") else -1,
        _intern(message.label_set),
        "" if ours else _intern(message.scheduler_name),
        message.deletion_cost,
        message.ordinal,
        message.uncontrolled,
        _intern(message.nominated_node),
        tuple(device_claims) if (device_claims := message.device_claims) else (),
        tuple(group_claims) if (group_claims := message.group_claims) else (),
        _intern(message.group_name),
        _intern(message.group_uid),
    )


# -- nodes


def encode_node(node: NodeFacts) -> pb.Node:
    """A node as a message."""
    return pb.Node(
        name=node.name,
        uid=node.uid,
        revision=node.revision,
        allocatable=encode_amounts(node.allocatable),
        labels=node.labels,
        taints=[pb.Taint(key=t.key, value=t.value, effect=number(t.effect)) for t in node.taints],
        unschedulable=node.unschedulable,
        ready=node.ready,
        device_backed=node.device_backed,
    )


def decode_node(message: pb.Node) -> NodeFacts:
    """The node that a message carries."""
    return NodeFacts(
        _intern(message.name),
        message.uid,
        message.revision,
        decode_amounts(message.allocatable),
        dict(message.labels),
        tuple(Taint(t.key, t.value, EFFECTS.get(t.effect, TaintEffect.NONE)) for t in message.taints),
        message.unschedulable,
        message.ready,
        tuple(map(_intern, message.device_backed)) if message.device_backed else (),
    )


# -- gangs


def encode_gang(gang: GangFacts) -> pb.Gang:
    """A gang as a message. Users may declare any number, so counts and priorities are cut to int32."""
    return pb.Gang(
        id=gang.id,
        dialect=gang.dialect,
        namespace=gang.namespace,
        name=gang.name,
        incarnation=gang.incarnation,
        minimum=_int32(gang.minimum),
        total=_int32(gang.total),
        mode=number(gang.mode),
        group=gang.group,
        waiting_time_seconds=gang.waiting_time_seconds,
        priority=None if gang.priority is None else _int32(gang.priority),
        created_seconds=gang.created_seconds,
        definition=None if gang.definition is None else encode_reference(gang.definition),
        problems=map(encode_problem, gang.problems),
        match_policy=number(gang.match_policy),
        repair_policy=number(gang.repair_policy),
        tree=gang.tree,
        constraints=map(encode_constraint, gang.constraints),
        terms=gang.terms,
        counts_succeeded=gang.counts_succeeded,
        uniform=gang.uniform,
        resources=encode_amounts(gang.resources),
        never_preempts=gang.never_preempts,
        evicted_whole=gang.evicted_whole,
        subgroups=map(encode_subgroups, gang.subgroups),
        composites=map(encode_composite, gang.composites),
        independent=gang.independent,
        creation_failure=gang.creation_failure,
    )


def decode_gang(message: pb.Gang) -> GangFacts:
    """The gang that a message carries. Unknown constraints block it."""
    problems = [decode_problem(problem) for problem in message.problems]
    constraints: tuple[LevelConstraint, ...] = ()
    subgroups: tuple[SubgroupPolicy, ...] = ()
    try:
        constraints = tuple(map(decode_constraint, message.constraints))
        subgroups = tuple(map(decode_subgroups, message.subgroups))
    except UnknownPolicy as error:
        problems.append(Problem(Severity.BLOCKING, str(error)))
    return GangFacts(
        _intern(message.id),
        _intern(message.dialect),
        _intern(message.namespace),
        message.name,
        message.incarnation,
        message.minimum,
        message.total,
        _MODES.get(message.mode, GangMode.STRICT),
        tuple(map(_intern, message.group)),
        message.waiting_time_seconds,
        message.priority if message.HasField("priority") else None,
        message.created_seconds,
        decode_reference(message.definition) if message.HasField("definition") else None,
        tuple(problems),
        _MATCH_POLICIES.get(message.match_policy, MatchPolicy.ONCE_SATISFIED),
        _REPAIR_POLICIES.get(message.repair_policy, RepairPolicy.YIELD),
        _intern(message.tree),
        constraints,
        tuple(message.terms),
        message.counts_succeeded,
        message.uniform,
        decode_amounts(message.resources),
        message.never_preempts,
        message.evicted_whole,
        subgroups,
        tuple(decode_composite(each, len(message.group)) for each in message.composites),
        message.independent,
        message.creation_failure,
    )


# -- budgets


def encode_budget(budget: DisruptionBudget) -> pb.DisruptionBudget:
    """A disruption budget as a message."""
    return pb.DisruptionBudget(id=budget.id, allowed=budget.allowed)


def decode_budget(message: pb.DisruptionBudget) -> DisruptionBudget:
    """The disruption budget that a message carries."""
    return DisruptionBudget(_intern(message.id), message.allowed)


# -- parts


def encode_reference(reference: ObjectReference) -> pb.ObjectReference:
    """A reference to an object as a message."""
    return pb.ObjectReference(
        api_version=reference.api_version,
        kind=reference.kind,
        namespace=reference.namespace,
        name=reference.name,
        uid=reference.uid,
    )


def decode_reference(message: pb.ObjectReference) -> ObjectReference:
    """A reference to an object."""
    return ObjectReference(message.api_version, message.kind, message.namespace, message.name, message.uid)


def encode_problem(problem: Problem) -> pb.Problem:
    """A problem as a message."""
    about = encode_reference(problem.about) if problem.about is not None else None
    return pb.Problem(severity=number(problem.severity), message=problem.message, reason=problem.reason, about=about)


def decode_problem(message: pb.Problem) -> Problem:
    """A problem; an unknown severity counts as blocking."""
    about = decode_reference(message.about) if message.HasField("about") else None
    return Problem(_SEVERITIES.get(message.severity, Severity.BLOCKING), message.message, message.reason, about)


def _int32(number: int) -> int:
    return max(-_INT32_MAX - 1, min(number, _INT32_MAX))
