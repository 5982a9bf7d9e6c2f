"""Revisions of topology trees: how new the objects are from which they are computed.

Trees are computed at intervals after changes of nodes, later than these changes are sent. So they have a revision of
their own in the stream, the kind "topologytrees": the resourceVersion of nodes up to which trees are computed. A solve
that must have reached it uses no older tree.
"""

from collections.abc import Mapping

from muster.gangs.facts import NODE_REVISIONS, TREE_REVISIONS


class TreeRevisions:
    """The newest changes from which trees are computed; one entry per kind of objects (I11)."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self.nodes = 0
        """Newest change of nodes that trees do not contain yet; 0: none."""

    def node_changed(self, revision: int) -> None:
        """A change of a node may change trees, once they are computed."""
        self.nodes = max(revision, self.nodes)

    def take_nodes(self) -> int:
        """The newest change of nodes since the last call, which trees contain now; 0: none."""
        revision, self.nodes = self.nodes, 0
        return revision

    def note(self, kind: str, revision: int) -> None:
        """A change of an object of this kind, or of nodes if it is the kind of trees, has changed trees."""
        self._newest[kind] = max(revision, self._newest.get(kind, 0))

    def restart(self, kind: str, through: int) -> None:
        """Forget later revisions of a kind: its history was restarted."""
        kinds = (NODE_REVISIONS, TREE_REVISIONS) if kind == NODE_REVISIONS else (kind,)
        for each in kinds:
            if each in self._newest:
                self._newest[each] = min(through, self._newest[each])
        if kind == NODE_REVISIONS:
            self.nodes = min(through, self.nodes)

    def newest(self, through: Mapping[str, int]) -> dict[str, int]:
        """Revisions that others must reach to have the trees of a snapshot with all changes up to `through`."""
        return {kind: min(revision, through[kind]) for kind, revision in self._newest.items() if kind in through}
