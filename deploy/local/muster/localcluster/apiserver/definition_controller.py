"""Serves the kinds of stored CustomResourceDefinitions."""

import asyncio

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.custom_kinds import DEFINITIONS, kinds_of
from muster.localcluster.apiserver.store import Change, Collection


class Definitions:
    """Reconciles the served kinds with the stored definitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name != DEFINITIONS:
            return
        kinds = self._cluster.kinds
        if change.before is not None:
            for kind in kinds_of(change.before.object):
                kinds.remove(kind)
        if change.type == "DELETED":
            asyncio.get_running_loop().call_soon(self._clean, change.record.key)
            return
        for kind in kinds_of(change.record.object):
            kinds.add(kind)

    def _clean(self, resource: str) -> None:
        """Delete all objects of a resource whose definition was deleted, then end its watches."""
        store = self._cluster.store
        if resource in store.collection(DEFINITIONS).records:
            return  # defined again in the meantime
        if (collection := store.collections.get(resource)) is not None:
            for key in list(collection.records):
                store.remove(resource, key)
        store.drop_collection(resource)
