"""Node filters: which nodes may take pods of a class at all, with reasons in kube-scheduler's words.

This module is the definition of the rules: cordons, taints, readiness, affinity, volumes. `filter_reason` checks one
class on one node; first-fit uses it as it is, and the coordinator for the reasons of rejected placements. Two modules
evaluate the same rules for many nodes at once, and tests compare them with this one: `muster.gangs.node_masks` for the
coordinator, `muster.placement.state.filters` for placement; both keep nodes as `muster.gangs.node_columns`. Rules that
depend on other pods are not filters of this kind: free resources are in `muster.gangs.capacity`, host ports, affinity
and spreading in `muster.placement.inter_pod`. CONTRIBUTING.md has the steps to add a filter.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from muster.gangs.facts import (
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)

UNSCHEDULABLE: Final = "node(s) were unschedulable"
NOT_READY: Final = "node(s) were not ready"
AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
VOLUMES: Final = "node(s) had volume node affinity conflict"

_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", TaintEffect.NO_SCHEDULE)
_HOSTNAME: Final = "kubernetes.io/hostname"
_NAME_FIELD: Final = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_INT64: Final = range(-(2**63), 2**63)
_MAX_LABEL_VALUE_LENGTH: Final = 63


def filter_reason(pod_class: PodClass, node: NodeFacts) -> str | None:
    """The first reason why the node is filtered out, in the order of kube-scheduler's filters; None if it is not.

    Readiness is checked where kube-scheduler would find the taint node.kubernetes.io/not-ready; a node that is not
    ready is filtered out even for pods that tolerate the taint. Volumes are last: kube-scheduler checks them after host
    ports and resources.
    """
    reason = status_filter_reason(pod_class.tolerations, node.unschedulable, node.taints, node.ready)
    if reason is not None:
        return reason
    if not affinity_matches(pod_class, node):
        return AFFINITY
    return None if volumes_reachable(pod_class, node) else VOLUMES


def status_filter_reason(
    tolerations: tuple[Toleration, ...], unschedulable: bool, taints: tuple[Taint, ...], ready: bool
) -> str | None:
    """The first of `status_filter_reasons`; None if there is none."""
    return next(status_filter_reasons(tolerations, unschedulable, taints, ready), None)


def status_filter_reasons(
    tolerations: tuple[Toleration, ...], unschedulable: bool, taints: tuple[Taint, ...], ready: bool
) -> Iterator[str]:
    """The filters that do not depend on the labels or the name of the node: cordon, taints, readiness."""
    if unschedulable and not tolerated(_CORDON, tolerations):
        yield UNSCHEDULABLE
    for taint in untolerated_taints(tolerations, taints):
        yield f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not ready:
        yield NOT_READY


def untolerated_taint(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """The first of `untolerated_taints`; None if there is none."""
    return next(untolerated_taints(tolerations, taints), None)


def untolerated_taints(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Iterator[Taint]:
    """The taints that these tolerations do not tolerate; PreferNoSchedule taints are ignored."""
    for taint in taints:
        if taint.effect in (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE) and not tolerated(taint, tolerations):
            yield taint


def prefer_no_schedule_count(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> int:
    """Number of PreferNoSchedule taints that these tolerations do not tolerate."""
    return sum(taint.effect is TaintEffect.PREFER_NO_SCHEDULE and not tolerated(taint, tolerations) for taint in taints)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """One of the tolerations matches the taint."""
    return any(
        (not toleration.effect or toleration.effect == taint.effect)
        and (not toleration.key or toleration.key == taint.key)
        and (toleration.operator is TolerationOperator.EXISTS or toleration.value == taint.value)
        for toleration in tolerations
    )


def affinity_matches(pod_class: PodClass, node: NodeFacts) -> bool:
    """The node matches the node selector and the required node affinity."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in pod_class.node_selector):
        return False
    terms = pod_class.required_node_affinity
    return terms is None or any(term_matches(term, node) for term in terms)


def names_nodes(pod_class: PodClass) -> bool:
    """The class may only use nodes that it, or one of its volumes, names: an added node is none of them."""
    terms = pod_class.required_node_affinity
    return (
        any(key == _HOSTNAME for key, _ in pod_class.node_selector)
        or (terms is not None and all(map(_names_nodes, terms)))
        or any(all(map(_names_nodes, volume)) for volume in pod_class.volumes)
    )


def _names_nodes(term: NodeSelectorTerm) -> bool:
    """The term matches only nodes that it names; a malformed one matches none, which no node changes either."""
    requirements = [each for each in term.labels if each.key == _HOSTNAME]
    requirements += [each for each in term.fields if each.key == _NAME_FIELD]
    return not term_valid(term) or any(each.operator is NodeOperator.IN for each in requirements)


def volumes_reachable(pod_class: PodClass, node: NodeFacts) -> bool:
    """The node can reach all volumes: it matches at least one term of each."""
    return all(any(term_matches(term, node) for term in terms) for terms in pod_class.volumes)


def preferred_affinity_score(pod_class: PodClass, node: NodeFacts) -> int:
    """Sum of the weights of the preferred terms that match the node."""
    return sum(wish.weight for wish in pod_class.preferred_node_affinity if term_matches(wish.term, node))


def term_matches(term: NodeSelectorTerm, node: NodeFacts) -> bool:
    """The node meets all requirements of the term; an empty or malformed term matches no node."""
    return (
        term_valid(term)
        and all(requirement_holds(each, node.labels.get(each.key)) for each in term.labels)
        and all(field_holds(each, node.name) for each in term.fields)
    )


def term_valid(term: NodeSelectorTerm) -> bool:
    """kube-scheduler accepts the term; it lets a term that it does not accept match nothing."""
    if not term.labels and not term.fields:
        return False
    return all(_label_requirement_valid(each) for each in term.labels) and all(
        each.operator in (NodeOperator.IN, NodeOperator.NOT_IN) and len(each.values) == 1 for each in term.fields
    )


def requirement_holds(requirement: NodeRequirement, value: str | None) -> bool:
    """A valid label requirement holds for this value of the label; None: the node does not have the label."""
    match requirement.operator:
        case NodeOperator.IN:
            return value is not None and value in requirement.values
        case NodeOperator.NOT_IN:
            return value is None or value not in requirement.values
        case NodeOperator.EXISTS:
            return value is not None
        case NodeOperator.DOES_NOT_EXIST:
            return value is None
    number = None if value is None else as_int64(value)
    bound = as_int64(requirement.values[0])
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator is NodeOperator.GT else number < bound


def field_holds(requirement: NodeRequirement, node_name: str) -> bool:
    """A valid field requirement holds; metadata.name is the only known field, all others are empty."""
    value = node_name if requirement.key == _NAME_FIELD else ""
    return (value == requirement.values[0]) is (requirement.operator is NodeOperator.IN)


def _label_requirement_valid(requirement: NodeRequirement) -> bool:
    values = requirement.values
    match requirement.operator:
        case NodeOperator.IN | NodeOperator.NOT_IN:
            count_right = bool(values)
        case NodeOperator.EXISTS | NodeOperator.DOES_NOT_EXIST:
            count_right = not values
        case _:
            count_right = len(values) == 1 and as_int64(values[0]) is not None
    return count_right and all(_LABEL_VALUE.fullmatch(value) for value in values)


def as_int64(text: str) -> int | None:
    """The text as parsed by Go's ParseInt(text, 10, 64); None where that fails."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text) if len(text) <= _MAX_LABEL_VALUE_LENGTH else _INT64.stop
    return number if number in _INT64 else None
