"""Reference implementation of kube-scheduler's filters, pod by pod, written from its documentation."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from builders.gangs.labels import selects
from muster.gangs.facts import HostPort, NodeFacts, PodClass, PodTerm, SpreadConstraint
from muster.gangs.node_filters import affinity_matches, filter_reason, term_matches, untolerated_taint

VOLUMES = "node(s) had volume node affinity conflict"
PORTS = "node(s) didn't have free ports for the requested pod ports"
SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True)
class Seated:
    """A pod on a node."""

    pod: PodClass
    node: str
    deleting: bool = False


def first_reason(pod: PodClass, on: NodeFacts, nodes: Sequence[NodeFacts], seated: Sequence[Seated]) -> str | None:
    """The first filter, in kube-scheduler's order, that rejects the pod on the node; None if it is accepted."""
    by_name = {node.name: node for node in nodes}
    there = [each for each in seated if each.node in by_name]
    here = [each for each in there if each.node == on.name]
    return (
        filter_reason(replace(pod, volumes=()), on)
        or _ports(pod, here)
        or _room(pod, on, here)
        or _volumes(pod, on)
        or _spread(pod, on, nodes, there)
        or _pods(pod, on, by_name, there)
    )


def _ports(pod: PodClass, here: Sequence[Seated]) -> str | None:
    held = [host_port for each in here for host_port in each.pod.host_ports]
    return PORTS if any(_same_port(a, b) for a in pod.host_ports for b in held) else None


def _same_port(a: HostPort, b: HostPort) -> bool:
    if (a.protocol, a.port) != (b.protocol, b.port):
        return False
    return a.ip == b.ip or "0.0.0.0" in (a.ip, b.ip)


def _room(pod: PodClass, on: NodeFacts, here: Sequence[Seated]) -> str | None:
    offered = dict(on.allocatable)
    for name, amount in pod.requests:
        held = sum(dict(each.pod.requests).get(name, 0) for each in here)
        if amount and amount > offered.get(name, 0) - held:
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return None


def _volumes(pod: PodClass, on: NodeFacts) -> str | None:
    return None if all(any(term_matches(term, on) for term in terms) for terms in pod.volumes) else VOLUMES


def _spread(pod: PodClass, on: NodeFacts, nodes: Sequence[NodeFacts], there: Sequence[Seated]) -> str | None:
    hard = [each for each in pod.spread if each.hard]
    for constraint in hard:
        value = on.labels.get(constraint.topology_key)
        if value is None:
            return SPREAD_LABEL
        counts: dict[str, int] = {}
        for node in nodes:
            if all(each.topology_key in node.labels for each in hard) and _included(constraint, pod, node):
                domain = node.labels[constraint.topology_key]
                counts[domain] = counts.get(domain, 0) + sum(
                    each.node == node.name and not each.deleting and selects(constraint.selector, each.pod.label_set)
                    for each in there
                )
        least = min(counts.values()) if len(counts) >= constraint.min_domains else 0
        itself = selects(constraint.selector, pod.label_set)
        if counts.get(value, 0) + itself - least > constraint.max_skew:
            return SPREAD
    return None


def _included(constraint: SpreadConstraint, pod: PodClass, node: NodeFacts) -> bool:
    if not constraint.ignores_node_affinity and not affinity_matches(pod, node):
        return False
    return not constraint.honors_taints or untolerated_taint(pod.tolerations, node.taints) is None


def _pods(pod: PodClass, on: NodeFacts, by_name: dict[str, NodeFacts], there: Sequence[Seated]) -> str | None:
    def same_domain(term: PodTerm, each: Seated) -> bool:
        value = on.labels.get(term.topology_key)
        return value is not None and by_name[each.node].labels.get(term.topology_key) == value

    terms = pod.required_pod_affinity
    friends = [each for each in there if all(selects(term.selector, each.pod.label_set) for term in terms)]
    if not all(term.topology_key in on.labels for term in terms):
        return AFFINITY
    if not all(any(same_domain(term, each) for each in friends) for term in terms):
        anywhere = any(term.topology_key in by_name[each.node].labels for term in terms for each in friends)
        if anywhere or not all(selects(term.selector, pod.label_set) for term in terms):
            return AFFINITY
    for term in pod.required_pod_anti_affinity:
        if any(selects(term.selector, each.pod.label_set) and same_domain(term, each) for each in there):
            return ANTI_AFFINITY
    for each in there:
        for term in each.pod.required_pod_anti_affinity:
            if selects(term.selector, pod.label_set) and same_domain(term, each):
                return EXISTING_ANTI_AFFINITY
    return None


def admits_one_by_one(nodes: Sequence[NodeFacts], seated: Sequence[Seated], members: Sequence[Seated]) -> bool:
    """There is an order in which the members can be bound to their nodes one by one."""
    by_name = {node.name: node for node in nodes}
    dead: set[tuple[int, ...]] = set()
    kinds = sorted({(each.pod.id, each.node) for each in members})
    classes = {each.pod.id: each.pod for each in members}
    wanted = tuple(sum((each.pod.id, each.node) == kind for each in members) for kind in kinds)

    def come(left: tuple[int, ...], present: list[Seated]) -> bool:
        if not any(left):
            return True
        if left in dead:
            return False
        for index, (class_id, node) in enumerate(kinds):
            pod = classes[class_id]
            if left[index] and first_reason(pod, by_name[node], nodes, present) is None:
                after = (*left[:index], left[index] - 1, *left[index + 1 :])
                if come(after, [*present, Seated(pod, node)]):
                    return True
        dead.add(left)
        return False

    return come(wanted, list(seated))


Places = tuple[tuple[tuple[str, str], int], ...]
"""((class id, node), members), sorted."""


def most_placed(
    nodes: Sequence[NodeFacts], seated: Sequence[Seated], wanted: Sequence[tuple[PodClass, int]]
) -> set[tuple[int, ...]]:
    """All numbers of members, by class, that can be placed one by one."""
    return {counts for counts, _ in all_placings(nodes, seated, wanted)}


def all_placings(
    nodes: Sequence[NodeFacts], seated: Sequence[Seated], wanted: Sequence[tuple[PodClass, int]]
) -> set[tuple[tuple[int, ...], Places]]:
    """All placements reachable one by one: members by class, and their nodes."""
    seen: set[tuple[tuple[int, ...], Places]] = set()

    def go(counts: tuple[int, ...], present: list[Seated], places: dict[tuple[str, str], int]) -> None:
        state = counts, tuple(sorted(places.items()))
        if state in seen:
            return
        seen.add(state)
        for index, (pod, most) in enumerate(wanted):
            if counts[index] < most:
                for node in nodes:
                    if first_reason(pod, node, nodes, present) is None:
                        at = (pod.id, node.name)
                        go(
                            (*counts[:index], counts[index] + 1, *counts[index + 1 :]),
                            [*present, Seated(pod, node.name)],
                            {**places, at: places.get(at, 0) + 1},
                        )

    go((0,) * len(wanted), list(seated), {})
    return seen
