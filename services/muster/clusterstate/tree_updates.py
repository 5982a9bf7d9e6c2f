"""Changes of ConfigMaps, HyperNodes, nodes and gangs, applied to topology trees in slices (I12)."""

from collections.abc import Collection, Mapping
from typing import Final

from muster.clusterstate.label_key_trees import LabelKeyTrees
from muster.clusterstate.pending_batch import PendingBatch
from muster.clusterstate.recomputation import SLICE, Recomputation, Recomputed
from muster.clusterstate.trees import Trees
from muster.gangs.facts import NODE_REVISIONS, TREE_REVISIONS, GangFacts, NodeFacts
from muster.kube.api_resources import HYPER_NODES, TOPOLOGIES
from muster.kube.hyper_nodes import HyperNodeObject
from muster.kube.object_changes import Removed
from muster.kube.topology_config_maps import ConfigMap

WEIGHTS: Final = {
    Recomputed.TOPOLOGY_MAP: SLICE // 2,
    Recomputed.TREE: SLICE // 3 + 1,
    Recomputed.PATTERN: SLICE // 12,
}
"""Processor time in multiples of a pod's: trees and patterns may contain all nodes."""


class TreeUpdates:
    """Queues what changes concern, and adds changed trees to the batch. ConfigMaps are kept until read (I11)."""

    def __init__(
        self, trees: Trees, nodes: Mapping[str, NodeFacts], pending: PendingBatch, recomputation: Recomputation
    ) -> None:
        """`nodes`: the present facts by name."""
        self._trees, self._nodes, self._pending, self._recomputation = trees, nodes, pending, recomputation
        self._label_key_trees = LabelKeyTrees()
        self._maps: dict[str, ConfigMap | None] = {}  # by uid, until they are read; None: removed
        self._hyper_nodes_changed = False  # in this batch
        self._begun = False

    def begin(self) -> None:
        """The initial lists are complete: compute trees from now on."""
        self._begun = True

    # -- changes; each returns False: trees do not change at once

    def put_map(self, config_map: ConfigMap) -> bool:
        """A ConfigMap may have a domain for each node."""
        return self._queue_map(config_map.metadata.uid, config_map, config_map.metadata.revision)

    def drop_map(self, removal: Removed) -> bool:
        return self._queue_map(removal.uid, None, removal.revision)

    def put_hyper_node(self, given: HyperNodeObject) -> bool:
        """Trees are updated once for all changes of a batch, with its revision, so that no solve uses an older tree."""
        self._hyper_nodes_changed |= self._trees.put_hyper_node(given)
        return False

    def drop_hyper_node(self, removal: Removed) -> bool:
        self._hyper_nodes_changed |= self._trees.remove_hyper_node(removal.uid)
        return False

    def end_batch(self, revision: int) -> None:
        """All changes of a batch were applied, up to this revision."""
        if self._hyper_nodes_changed:
            self._hyper_nodes_changed = False
            self._trees.revisions.note(HYPER_NODES.kind, revision)
            self._recomputation.add(Recomputed.PATTERN, self._trees.new_patterns(), HYPER_NODES.kind, revision)
            self._recomputation.add(Recomputed.TREE, ("",), HYPER_NODES.kind, revision)

    def review(self) -> bool:
        """Nodes may have changed; returns whether they have."""
        if not self._trees.stale or not self._begun:
            return False
        self._trees.stale = False
        names = ["", *self._trees.facts]
        self._recomputation.add(Recomputed.TREE, names, TREE_REVISIONS, self._trees.revisions.nodes)
        return True

    def offer(self, gangs: Collection[GangFacts], removed: Collection[str], revisions: Mapping[str, int]) -> bool:
        """Gangs changed, which may name other labels; returns whether trees were settled. `revisions`: by kind."""
        named = self._label_key_trees
        if not named.take(gangs, removed):
            return False
        self._trees.offer(named.labels(), hyper_nodes=named.hyper_nodes)
        self._settle()
        for kind, revision in revisions.items():
            self._trees.revisions.note(kind, revision)
        return True

    def reach(self, through: dict[str, int]) -> None:
        """Raise the revision of trees: they contain all nodes, unless some have changed since they were settled."""
        if self._begun and not self._trees.revisions.nodes and NODE_REVISIONS in through:
            through[TREE_REVISIONS] = through[NODE_REVISIONS]

    # -- slices; each returns whether trees changed

    def read_map(self, uid: str) -> bool:
        """Read a ConfigMap."""
        config_map = self._maps.pop(uid)
        changed = self._trees.put(config_map) if config_map is not None else self._trees.remove(uid)
        if changed:
            self._trees.revisions.note(TOPOLOGIES, self._recomputation.causes[TOPOLOGIES])
        return changed and self._settle()

    def check(self, name: str) -> bool:
        """Compare a tree with the nodes; compute those of HyperNodes if the name is empty."""
        if name:
            self._trees.recheck(name)
            self._settle()
            return False  # what matters to gangs has the revision of trees
        self._trees.hyper_nodes_stale = True
        return self._settle()

    def evaluate(self, pattern: str) -> bool:
        """Evaluate a pattern of HyperNodes."""
        self._trees.evaluate(pattern, self._nodes)
        return False

    def _settle(self) -> bool:
        if not self._begun:
            return False
        settled = self._trees.settle(self._nodes)
        self._pending.trees.update((tree.name, tree) for tree in settled.changed)
        self._pending.trees.update((name, None) for name in settled.removed)
        if settled.nodes and settled.concerns_gangs:
            self._trees.revisions.note(TREE_REVISIONS, settled.nodes)
            self._pending.raise_revision(TREE_REVISIONS, settled.nodes)
        return bool(settled.changed or settled.removed)

    def _queue_map(self, uid: str, config_map: ConfigMap | None, revision: int) -> bool:
        self._maps[uid] = config_map
        self._recomputation.add(Recomputed.TOPOLOGY_MAP, (uid,), TOPOLOGIES, revision)
        return False
