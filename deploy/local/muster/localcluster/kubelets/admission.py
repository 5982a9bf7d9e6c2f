"""Admission of bound pods, with the rules, reasons and messages of a real kubelet.

It reveals a scheduler that oversubscribes a node: the pod fails with OutOfcpu and the like.
"""

from typing import Final

from msgspec import Struct

from muster.gangs.facts import Amounts, NodeFacts, PodClass, TaintEffect
from muster.gangs.node_filters import affinity_matches, tolerated

_ORDER: Final = ("pods", "cpu", "memory", "ephemeral-storage")
_NATIVE: Final = ("pods", "cpu", "memory", "ephemeral-storage")


class Rejection(Struct, frozen=True):
    """Reason and message of a rejected pod."""

    reason: str
    message: str


class NodeCapacity:
    """Allocatable of one node and requests of its running pods, in millicores, bytes, units."""

    def __init__(self, facts: NodeFacts) -> None:
        self.update(facts)
        self._taken: dict[str, Amounts] = {}  # by pod uid
        self._used: dict[str, int] = {}

    def update(self, facts: NodeFacts) -> None:
        """Update the allocatable amounts, labels and taints from the Node object."""
        self._facts = facts
        self._allocatable = dict(facts.allocatable)

    def __contains__(self, uid: str) -> bool:
        return uid in self._taken

    def admit(self, uid: str, pod_class: PodClass) -> Rejection | None:
        """Admit the pod, or return the reason for rejecting it."""
        rejection = self._rejection_of(pod_class)
        if rejection is None:
            self.take(uid, pod_class)
        return rejection

    def take(self, uid: str, pod_class: PodClass) -> None:
        """Account for a pod without checks, since it runs already."""
        if uid not in self._taken:
            self._taken[uid] = pod_class.requests
            for name, amount in pod_class.requests:
                self._used[name] = self._used.get(name, 0) + amount

    def release(self, uid: str) -> None:
        """Release the requests of a pod that has ended; has no effect if it was not admitted."""
        for name, amount in self._taken.pop(uid, ()):
            self._used[name] -= amount

    def _rejection_of(self, pod_class: PodClass) -> Rejection | None:
        requested = dict(pod_class.requests)
        for name in (*_ORDER, *(name for name in requested if name not in _ORDER)):
            if rejection := self._insufficient(name, requested.get(name, 0)):
                return rejection
        if not affinity_matches(pod_class, self._facts):
            return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
        for taint in self._facts.taints:
            if taint.effect is TaintEffect.NO_EXECUTE and not tolerated(taint, pod_class.tolerations):
                return _failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
        return None

    def _insufficient(self, name: str, requested: int) -> Rejection | None:
        if not requested:
            return None
        capacity = self._allocatable.get(name)
        if capacity is None:
            if name not in _NATIVE and not name.startswith("hugepages-"):
                return None  # kubelets ignore extended resources that their node does not have
            capacity = 0
        used = self._used.get(name, 0)
        if requested <= capacity - used:
            return None
        message = (
            f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
        return Rejection(f"OutOf{name}", message)


def _failed(predicate: str, detail: str) -> Rejection:
    return Rejection(predicate, f"Predicate {predicate} failed: {detail}")
