"""Decides which wait (`report/waits`) applies to the pods of a gang that are not bound."""

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.report.reasons import Kind, kind
from muster.coordinator.core.report.waits import Wait
from muster.gangs.counted_resources import is_static
from muster.gangs.facts import PodClass
from muster.gangs.node_filters import names_nodes
from muster.gangs.solve import Explanation

SOON_SECONDS = 600.0
"""Reserved capacity that is expected within this time is awaited; for later one, or if no end is known, new nodes come
sooner. Cluster Autoscaler gives a node 15 minutes to join.
"""
_POD_AFFINITY = "node(s) didn't match pod affinity rules"
_OF_KINDS = {
    Kind.NONE: Wait.STARTING,
    Kind.NOT_BOUND: Wait.BIND_FAILED,
    Kind.MARKED: Wait.TIMED_OUT,
}


def wait_of(gang: Gang, cache: Cache) -> Wait:
    """The wait of the gang's members without a seat; of those with one, `Wait.HOLDING` or `Wait.STARTING` applies."""
    group, found = gang.group, kind(gang)
    if found in _OF_KINDS:
        return _OF_KINDS[found]
    if group.not_ready is not None:
        return group.not_ready_wait or Wait.DECLARATION
    if group.busy and group not in cache.nominations and (lack := cache.why_not_ready(group)) is not None:
        return lack.wait  # with capacity that is nominated for it, it is looked at when the attempt has ended
    if found is Kind.HOLDING and gang.missing <= 0:
        return Wait.GROUP_INCOMPLETE
    return _of_attempt(group, cache)


def _of_attempt(group: Group, cache: Cache) -> Wait:
    """The wait of a group that may be tried."""
    nomination = cache.nominations.get(group)
    if nomination is not None and not nomination.backfill:
        return Wait.PREEMPTING
    if nomination is not None and nomination.starts_at - nomination.begun_at <= SOON_SECONDS:
        return Wait.RESERVED
    if group.queueing.failure:
        return Wait.FAILED
    explanation = group.solve.explanation
    if explanation is None:
        return Wait.TURN
    if not group.solve.proved and (group.solve.slow or not explanation.class_id):
        return Wait.NOT_FOUND
    if any(_tree_is_closed(gang, cache) for gang in group.gangs_to_place):
        return Wait.TOPOLOGY
    return _of_explanation(explanation, cache.ledger.classes.get(explanation.class_id))


def _of_explanation(explanation: Explanation, pod_class: PodClass | None) -> Wait:
    if explanation.only_constraints:
        return Wait.TOPOLOGY
    if pod_class is not None and names_nodes(pod_class):
        return Wait.NAMED_NODES
    if any(is_static(name) for name, _ in explanation.short_by):
        return Wait.VOLUMES
    reasons = [reason for reason, _ in explanation.filtered_nodes]
    return Wait.POD_AFFINITY if reasons == [_POD_AFFINITY] else Wait.CAPACITY


def _tree_is_closed(gang: Gang, cache: Cache) -> bool:
    """The gang has hard constraints in a tree whose ConfigMap lists the nodes: an added one is not in it."""
    if gang.facts is None or not any(each.hard for each in gang.constraints):
        return False
    tree = cache.trees.get(gang.facts.tree)
    if tree is None or not tree.leaves or tree.definition is None or tree.definition.kind != "ConfigMap":
        return False
    nodes = tree.levels[-1].name
    return any(each.hard and each.level != nodes for each in gang.constraints)
