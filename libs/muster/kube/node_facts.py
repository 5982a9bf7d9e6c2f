"""Converts nodes to facts: allocatable resources, labels, taints and readiness."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw

from muster.gangs.byte_cache import cached_by_bytes
from muster.gangs.facts import Amounts, NodeFacts, Taint, TaintEffect
from muster.gangs.quantity import BadQuantity, to_amount
from muster.gangs.quoting import quoted
from muster.kube.node_selection import EFFECTS
from muster.kube.objects import UNREADABLE, Condition, Node, TaintSpec
from muster.kube.pod_requests import quantity_text

_amounts: Final = msgspec.json.Decoder(dict[str, Raw] | None)


def node_facts(node: Node) -> NodeFacts:
    """The facts of a node.

    Malformed fields offer nothing: a resource with a bad quantity is missing, a node without a readable Ready condition
    is not ready; node_problems has the reasons. Raises BadResourceVersion.
    """
    metadata = node.metadata
    return NodeFacts(
        name=metadata.name,
        uid=metadata.uid,
        revision=metadata.revision,
        allocatable=_allocatable(bytes(node.status.allocatable))[0],
        labels=metadata.labels or {},
        taints=tuple(_taints(node.spec.taints or ())),
        unschedulable=bool(node.spec.unschedulable),
        ready=_is_ready(node.status.conditions or ()),
    )


def node_problems(node: Node) -> tuple[str, ...]:
    """Descriptions of the fields that could not be read."""
    unreadable = (node.problem,) if node.problem else ()
    return unreadable + _allocatable(bytes(node.status.allocatable))[1]


@cached_by_bytes(8 * 1024 * 1024)
def _allocatable(allocatable: bytes) -> tuple[Amounts, tuple[str, ...]]:
    """Amounts of status.allocatable rounded down, without zeros, and problems."""
    if not allocatable:
        return (), ()
    try:
        given = _amounts.decode(allocatable) or {}
    except UNREADABLE as error:
        shown = quoted(allocatable[:256].decode(errors="replace"))
        return (), (f"status.allocatable is {shown}: {error}",)
    amounts: dict[str, int] = {}
    problems: list[str] = []
    for name, raw in given.items():
        try:
            amount = to_amount(name, quantity_text(raw), round_up=False)
        except BadQuantity as error:
            problems.append(f"status.allocatable of {quoted(name)}: {error}")
            continue
        if amount > 0:
            amounts[name] = amount
    return tuple(sorted(amounts.items())), tuple(problems)


def _taints(given: Iterable[TaintSpec]) -> Iterable[Taint]:
    for each in given:
        # An unknown effect of a later Kubernetes counts as NoSchedule, to be safe.
        effect = EFFECTS.get(each.effect, TaintEffect.NO_SCHEDULE)
        yield Taint(each.key, each.value or "", effect)


def _is_ready(conditions: Iterable[Condition]) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in conditions)
