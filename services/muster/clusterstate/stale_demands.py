"""Pods whose demands, and nodes whose offers of volumes, may have changed."""

from collections.abc import Collection, Iterable, Mapping

from muster.clusterstate.claim_users import ClaimUsers
from muster.clusterstate.storage_objects import ClaimId, StorageObjects


class StaleDemands:
    """Names of what may have changed, until they are taken after each batch of changes (I11). Each is there once,
    however many changes concern it.
    """

    def __init__(self) -> None:
        self._pods: set[str] = set()
        self._classes: set[str] = set()  # of whose claims the demands may have changed
        self._drivers: set[str] = set()
        self._nodes: set[str] = set()
        self._all_nodes = False
        self._static_classes: set[str] = set()

    def static_classes(self, names: Iterable[str]) -> None:
        """Note the volumes and claims of storage classes that may be static now, or not any more."""
        self._static_classes.update(names)

    def pods(self, uids: Iterable[str]) -> None:
        """Note pods by their uids."""
        self._pods.update(uids)

    def classes(self, names: Iterable[str]) -> None:
        """Note all pods with claims of these storage classes."""
        self._classes.update(names)

    def drivers(self, names: Iterable[str]) -> None:
        """Note all pods with volumes of these CSI drivers."""
        self._drivers.update(names)

    def nodes(self, names: Iterable[str]) -> None:
        """Note nodes by name."""
        self._nodes.update(names)

    def all_nodes(self) -> None:
        """Note all nodes."""
        self._all_nodes = True

    def take_static(self, users: Iterable[ClaimId], objects: StorageObjects) -> tuple[list[str], list[ClaimId]]:
        """Volumes and claims of classes that were noted since the last call. `users`: all claims that pods use."""
        classes, self._static_classes = self._static_classes, set()
        if not classes:
            return [], []
        claims = [id_ for id_ in users if (claim := objects.claims.get(id_)) and claim.storage_class in classes]
        return [name for name, facts in objects.volumes.items() if facts.storage_class in classes], claims

    def take_pods(self, users: Mapping[ClaimId, ClaimUsers], objects: StorageObjects) -> Collection[str]:
        """Pods that were noted since the last call. `users`: of all claims."""
        stale, self._pods = self._pods, set()
        if self._classes or self._drivers:
            classes, self._classes = self._classes, set()
            drivers, self._drivers = self._drivers, set()
            for id_, of_claim in users.items():
                claim = objects.claims.get(id_)
                if claim is None:
                    continue
                attached = objects.attachment(id_) if drivers else None
                if claim.storage_class in classes or (attached is not None and attached[0] in drivers):
                    stale.update(of_claim)
        return stale

    def take_nodes(self, nodes: Iterable[str]) -> Collection[str]:
        """Nodes of these that were noted since the last call."""
        stale = list(nodes) if self._all_nodes else self._nodes
        self._nodes, self._all_nodes = set(), False
        return stale
