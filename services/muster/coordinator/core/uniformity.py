"""Gangs whose pods must all be of one kind: which of them is of another, and in what."""

from collections.abc import Mapping
from typing import Final

from muster.coordinator.core.amounts import in_units
from muster.coordinator.core.gang import Gang
from muster.gangs.facts import PodClass
from muster.topology.ranks import natural_order

_COMPARED: Final = {
    "node_selector": "its node selector",
    "required_node_affinity": "its node affinity",
    "preferred_node_affinity": "its preferred node affinity",
    "tolerations": "its tolerations",
    "required_pod_affinity": "its pod affinity",
    "required_pod_anti_affinity": "its pod anti-affinity",
    "preferred_pod_affinity": "its preferred pod affinity",
    "spread": "its topology spread constraints",
    "host_ports": "its host ports",
}
"""What pods of one kind have in common besides requests. Each has volumes and labels of its own."""
_MOST_NAMED: Final = 5


def unlike(gang: Gang, classes: Mapping[str, PodClass]) -> str | None:
    """Which members ask something else of a node than the first, and what; None: none does, or they may."""
    if gang.facts is None or not gang.facts.uniform:
        return None
    members = [*gang.waiting, *gang.seats, *gang.acked, *gang.bound]
    if len({gang.pods[uid].class_id for uid in members}) < 2:
        return None
    pods = sorted((gang.pods[uid] for uid in members), key=lambda pod: natural_order(pod.name))
    first = classes[pods[0].class_id]
    others: dict[str, str] = {}
    for pod in pods[1:]:
        if pod.class_id != pods[0].class_id and (what := _difference(first, classes[pod.class_id])):
            others[pod.name] = what
    if not others:
        return None
    name, what = next(iter(others.items()))
    more = [each for each in others if each != name][: _MOST_NAMED - 1]
    beyond = f" and {len(others) - 1 - len(more)} more" if len(others) - 1 > len(more) else ""
    also = f"; so do {', '.join(more)}{beyond}" if more else ""
    return f"its pods must all ask the same of a node, but {name} differs from {pods[0].name} in {what}{also}"


def _difference(first: PodClass, other: PodClass) -> str:
    """In words; empty: pods of one kind may differ so."""
    before, after = dict(first.requests), dict(other.requests)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name, 0) != after.get(name, 0):
            return f"{name}: {in_units(name, after.get(name, 0))}, not {in_units(name, before.get(name, 0))}"
    return next((words for field, words in _COMPARED.items() if getattr(first, field) != getattr(other, field)), "")
