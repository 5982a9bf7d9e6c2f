"""Checks by Kubernetes' rules whether a node accepts pods of a class, independently of any solver."""

import re
from collections.abc import Sequence
from typing import Final

from muster.gangs.facts import (
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    Taint,
    TaintEffect,
    TolerationOperator,
)

_REPELLING: Final = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", TaintEffect.NO_SCHEDULE)


def filter_reason(pod_class: PodClass, node: NodeFacts) -> str:
    """Why the node rejects the class, free capacity aside; "" if it does not."""
    if not node.ready:
        return "it is not ready"
    if node.unschedulable and not _tolerates(pod_class, _CORDON):
        return "it is cordoned"
    for taint in node.taints:
        if taint.effect in _REPELLING and not _tolerates(pod_class, taint):
            return f"it has the taint {taint.key}={taint.value}:{taint.effect.name}, which is not tolerated"
    if not matches_affinity(pod_class, node):
        return f"its labels {node.labels} do not match the node selector or the required node affinity"
    for terms in pod_class.volumes:
        if not _one_matches(terms, node):
            return "a volume cannot be reached from it"
    return ""


def matches_affinity(pod_class: PodClass, node: NodeFacts) -> bool:
    """Node selector and required node affinity match."""
    selected = all(node.labels.get(key) == value for key, value in pod_class.node_selector)
    required = pod_class.required_node_affinity
    return selected and (required is None or _one_matches(required, node))


def tolerates_all(pod_class: PodClass, node: NodeFacts) -> bool:
    """Every NoSchedule and NoExecute taint of the node is tolerated."""
    return all(taint.effect not in _REPELLING or _tolerates(pod_class, taint) for taint in node.taints)


def _tolerates(pod_class: PodClass, taint: Taint) -> bool:
    for toleration in pod_class.tolerations:
        if toleration.effect not in (TaintEffect.NONE, taint.effect):
            continue
        if toleration.operator is TolerationOperator.EXISTS:
            if toleration.key in ("", taint.key):
                return True
        elif (toleration.key, toleration.value) == (taint.key, taint.value):
            return True
    return False


def _one_matches(terms: Sequence[NodeSelectorTerm], node: NodeFacts) -> bool:
    return any(_matches(term, node) for term in terms)


def _matches(term: NodeSelectorTerm, node: NodeFacts) -> bool:
    if not term.labels and not term.fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(each, node.labels) for each in term.labels) and all(_holds(each, fields) for each in term.fields)


def _holds(requirement: NodeRequirement, values: dict[str, str]) -> bool:
    value = values.get(requirement.key)
    match requirement.operator:
        case NodeOperator.EXISTS:
            return value is not None
        case NodeOperator.DOES_NOT_EXIST:
            return value is None
        case NodeOperator.IN:
            return value in requirement.values
        case NodeOperator.NOT_IN:
            return value not in requirement.values
        case _:
            if value is None or not re.fullmatch(r"[+-]?[0-9]+", value):
                return False
            above = int(value) - int(requirement.values[0])
            return above > 0 if requirement.operator is NodeOperator.GT else above < 0
