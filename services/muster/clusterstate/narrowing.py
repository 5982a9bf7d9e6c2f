"""Where a pod may go when both it and its job select nodes: where both let it."""

from functools import cached_property

from muster.dialects.definitions import ControllerGang
from muster.dialects.marks import Pairs
from muster.gangs.quoting import quoted


class Narrowing:
    """A pod's own node selector, together with that of its job."""

    def __init__(self, own: Pairs, job: ControllerGang) -> None:
        self.own, self._job = own, job

    @cached_property
    def node_selector(self) -> Pairs:
        """Labels that a node must have. Where the two clash it has the pod's: the pod waits for that anyway."""
        return tuple(sorted({**dict(self._job.node_selector), **dict(self.own)}.items()))

    @cached_property
    def clash(self) -> str:
        """Why no node can satisfy both; empty: they do not clash."""
        own = dict(self.own)
        for key, value in self._job.node_selector:
            if own.get(key, value) != value:
                said = f"nodeSelector has {quoted(key)}: {quoted(own[key])}"
                return f"{said}, but {self._job.source} has {quoted(value)}: no node can have both, so mend one of them"
        return ""
