"""Devices that several nodes share and that bound pods use: only the nodes of these pods still offer them.

Other nodes must not offer what a pod uses elsewhere. Its own node does, since the pod requests it: it is free there
when the pod is evicted.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

_NOTHING: Final[Counter[str]] = Counter()


class SharedDevicesInUse:
    """Amounts by pod and summed by node. Entries end with the pod, or when it uses no such devices (I11)."""

    def __init__(self) -> None:
        self._of_pod: dict[str, tuple[str, Mapping[str, int]]] = {}
        self._on: dict[str, Counter[str]] = {}

    def on(self, node: str) -> Mapping[str, int]:
        """Amounts by resource that a node offers in addition; 0 for all others."""
        return self._on.get(node, _NOTHING)

    def put(self, uid: str, node: str, amounts: Mapping[str, int]) -> Collection[str]:
        """A pod on a node uses these amounts now; returns the nodes that offer others."""
        before = self._of_pod.pop(uid, ("", {}))
        after = (node, amounts) if node and amounts else ("", {})
        if after[0]:
            self._of_pod[uid] = after
        if before == after:
            return ()
        for (name, used), sign in ((before, -1), (after, 1)):
            if name:
                self._add(name, used, sign)
        return {name for name in (before[0], after[0]) if name}

    def _add(self, node: str, amounts: Mapping[str, int], sign: int) -> None:
        total = self._on.setdefault(node, Counter())
        for resource, amount in amounts.items():
            total[resource] += sign * amount
            if not total[resource]:
                del total[resource]
        if not total:
            del self._on[node]
