"""Changes of a question or of the cluster that may let gangs start: each is played before it is said.

All are values: another question, or a change of the cluster before it is asked.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch, GangFacts, LevelConstraint, NodeFacts, PodFacts, TopologyTree
from muster.topology.constraints import as_text

HOSTNAME: Final = "kubernetes.io/hostname"
_MAX_NODE_KINDS: Final = 3
_MAX_NAMED: Final = 5
"""Objects of one alternative that its text names."""


class Alternative(NamedTuple):
    """One change. `text` completes the sentence "it would start if ..."."""

    text: str
    question: Batch
    before: Batch = Batch()
    """Happens before the question is asked."""


def alternatives(question: Batch, cluster: Batch, priorities: Mapping[str, int]) -> Iterator[Alternative]:
    """Changes in the order in which they are tried: a minimum that its pods reach, each hard constraint soft,
    cordoned nodes usable, one node more of each kind, preemption without policy Never or disruption budgets, each
    higher priority class. `priorities`: values of the priority classes, by name.
    """
    if (lower := with_reached_minimum(question)) is not None:
        yield lower
    for gang in question.gangs:
        for constraint in gang.constraints:
            if constraint.hard:
                yield Alternative(
                    f'the constraint "{as_text(constraint)}" of {gang.namespace}/{gang.name} were soft',
                    _with_gang(question, _softened(gang, constraint)),
                )
    if cordoned := [node for node in cluster.nodes if node.unschedulable]:
        usable = tuple(replace(node, unschedulable=False) for node in cordoned)
        yield Alternative(
            f"{_named('node', [node.name for node in cordoned])} not cordoned", question, Batch(nodes=usable)
        )
    for node in _kinds_of_nodes(cluster.nodes):
        text = f"there were one more node like {node.name}"
        yield Alternative(text, question, with_nodes_like(cluster, node.name, 1))
    if any(pod.never_preempts for pod in question.pods):
        yield Alternative("its preemption policy were PreemptLowerPriority", _preempting(question))
    highest = max((pod.priority for pod in question.pods), default=0)
    protecting = {budget for pod in cluster.pods if pod.seated and pod.priority < highest for budget in pod.budgets}
    if budgets := [budget for budget in cluster.budgets if budget.id in protecting]:
        allowing = tuple(replace(budget, allowed=len(cluster.pods)) for budget in budgets)
        text = f"{_named('disruption budget', [budget.id for budget in budgets])} no obstacle"
        yield Alternative(text, question, Batch(budgets=allowing))
    for name, value in sorted(priorities.items(), key=lambda pair: pair[1]):
        if value > highest:
            yield Alternative(f"its priority class were {name} ({value})", with_priority(question, value))


def _named(kind: str, names: list[str]) -> str:
    """The subject of a sentence with "were": some objects of a kind."""
    shown = ", ".join(sorted(names)[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {shown}{more} were"


def _preempting(question: Batch) -> Batch:
    return replace(question, pods=tuple(replace(pod, never_preempts=False) for pod in question.pods))


def changed_by(cluster: Batch, changes: Iterable[Batch]) -> Batch:
    """The cluster after these changes."""
    changed = VirtualCluster()
    for each in (cluster, *changes):
        changed.apply(each)
    return changed.whole()


def with_reached_minimum(question: Batch) -> Alternative | None:
    """The minimum of the only gang is as many as it has members; None: it has more."""
    members = len(question.pods)
    if len(question.gangs) != 1 or not 0 < members < question.gangs[0].minimum:
        return None
    return Alternative(f"its minimum were {members}", smaller(question, members))


def smaller(question: Batch, members: int) -> Batch:
    """The question with so many members of its only gang, all of which must start together."""
    [gang] = question.gangs
    kept = question.pods[:members]
    return replace(question, pods=kept, gangs=(replace(gang, minimum=len(kept), total=0),))


def with_priority(question: Batch, priority: int) -> Batch:
    """The question with another priority of all its pods."""
    return replace(question, pods=tuple(replace(pod, priority=priority) for pod in question.pods))


def without_gang(cluster: Batch, gang: str) -> Batch:
    """A gang and its pods are removed from the cluster."""
    pods = tuple(pod.uid for pod in cluster.pods if (pod.gang or _plain(pod)) == gang)
    return Batch(removed_pods=pods, removed_gangs=tuple(each.id for each in cluster.gangs if each.id == gang))


def without_node(cluster: Batch, name: str) -> Batch:
    """A node and the pods on it are removed from the cluster."""
    return Batch(removed_nodes=(name,), removed_pods=tuple(pod.uid for pod in cluster.pods if pod.node == name))


def with_nodes_like(cluster: Batch, name: str, count: int) -> Batch:
    """Nodes are added that are like one of the cluster, but empty, ready, and in the same topology domains."""
    [like] = [node for node in cluster.nodes if node.name == name]
    added = []
    for number in range(1, count + 1):
        new = f"{name}-more-{number}"
        labels = {**like.labels, **({HOSTNAME: new} if HOSTNAME in like.labels else {})}
        added.append(replace(like, name=new, uid=new, labels=labels, unschedulable=False, ready=True))
    names = [node.name for node in added]
    trees = [_with_leaves(tree, name, names) for tree in cluster.trees]
    return Batch(nodes=tuple(added), trees=tuple(tree for tree in trees if tree is not None))


def with_more_nodes(question: Batch, cluster: Batch, count: int) -> Alternative:
    """The alternative with so many nodes more of the most frequent kind."""
    like = _kinds_of_nodes(cluster.nodes)[0].name
    return Alternative(f"there were {count} more nodes like {like}", question, with_nodes_like(cluster, like, count))


def _with_leaves(tree: TopologyTree, like: str, names: Iterable[str]) -> TopologyTree | None:
    """The tree with more leaves; None: it does not have the node that they are like."""
    domain = next((at for node, at in tree.leaves if node == like), None)
    if domain is None:
        return None
    return replace(tree, leaves=(*tree.leaves, *((name, domain) for name in names)))


def _softened(gang: GangFacts, constraint: LevelConstraint) -> GangFacts:
    constraints = tuple(replace(each, hard=False) if each == constraint else each for each in gang.constraints)
    return replace(gang, constraints=constraints)


def _with_gang(question: Batch, gang: GangFacts) -> Batch:
    return replace(question, gangs=tuple(gang if each.id == gang.id else each for each in question.gangs))


def _kinds_of_nodes(nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    """One node of each kind, the most frequent kinds first: kinds differ in what they offer and in their taints."""
    kinds: dict[object, list[NodeFacts]] = {}
    for node in nodes:
        kinds.setdefault((node.allocatable, node.taints), []).append(node)
    return [some[0] for some in sorted(kinds.values(), key=len, reverse=True)[:_MAX_NODE_KINDS]]


def _plain(pod: PodFacts) -> str:
    return f"plain/{pod.namespace}/{pod.name}"
