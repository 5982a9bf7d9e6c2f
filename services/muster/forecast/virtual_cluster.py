"""A virtual cluster: facts that only change by what is played on it.

Like cluster-state it counts revisions: every change raises that of all kinds, and `whole` is a snapshot.
"""

from collections import defaultdict
from typing import Final

from msgspec.structs import replace

from muster.gangs.facts import NODE_REVISIONS, POD_REVISIONS, TREE_REVISIONS, Batch
from muster.gangs.facts_store import FactsStore

_KINDS: Final = (NODE_REVISIONS, POD_REVISIONS, TREE_REVISIONS)


class VirtualCluster(FactsStore):
    """Facts by kind and key. Their number is bounded by what the creator puts in, and by `apply`."""

    def __init__(self, revision: int = 0) -> None:
        super().__init__()
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        """Uids of the pods of each gang that has any."""
        self.revision = revision

    @property
    def through(self) -> dict[str, int]:
        """The revisions that it has reached, by kind."""
        return dict.fromkeys(_KINDS, self.revision)

    def apply(self, batch: Batch) -> Batch:
        """Change the facts. Returns the batch with the revisions that the change has here."""
        self._index(batch)
        self.put(batch)
        self.revision += 1
        return replace(batch, changed=self.through, through=self.through)

    def _index(self, batch: Batch) -> None:
        for uid in batch.removed_pods:
            self._leave(uid)
        for pod in batch.pods:
            self._leave(pod.uid)
            if pod.gang:
                self.members[pod.gang].add(pod.uid)

    def _leave(self, uid: str) -> None:
        before = self.pods.get(uid)
        if before is None or not before.gang:
            return
        self.members[before.gang].discard(uid)
        if not self.members[before.gang]:
            del self.members[before.gang]

    def whole(self) -> Batch:
        """A snapshot."""
        return self.snapshot(self.through, self.through)
