"""Chooses a node of the nominated capacity for each member of a group: its status.nominatedNodeName.

A nomination is for the members of a group by node and class; autoscalers and other schedulers see nominated nodes of
single pods. A member keeps the node that it has as long as the nomination has capacity for it there.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from muster.coordinator.core.preemption.nomination import Nomination


def nominated_nodes(nomination: Nomination, node_before: Callable[[str], str]) -> dict[str, str]:
    """Nodes by uid of pending members; members beyond the nominated capacity are missing. `node_before`: the node that
    a member was reported to have, "" if none.
    """
    left = Counter(nomination.capacity)
    left.subtract((seat.node, seat.class_id) for seat in nomination.arrived)
    pods = [pod for gang in nomination.group.gangs_to_place for pod in gang.pending.values()]
    nodes: dict[str, str] = {}
    for pod in pods:
        key = (node_before(pod.uid), pod.class_id)
        if left[key] > 0:
            left[key] -= 1
            nodes[pod.uid] = key[0]
    free: defaultdict[str, list[str]] = defaultdict(list)
    for (node, class_id), count in sorted(left.items(), reverse=True):
        free[class_id] += [node] * max(0, count)
    for pod in pods:
        if pod.uid not in nodes and free[pod.class_id]:
            nodes[pod.uid] = free[pod.class_id].pop()
    return nodes
