"""Sakkara's topology trees in a cluster, and the status that is written back to groups."""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Any

from builders.e2e.cluster import CALL_SECONDS, JSON, Cluster, node_of
from builders.e2e.world import World
from builders.gangs.manifests import Workload
from builders.kube.watch import follow_kind

RANK, STATUS, RETRIES = "sakkara.member.rank", "sakkara.member.status", "sakkara.member.retries"

Tree = Mapping[str, Any]
"""Nested domains; a list names nodes."""


@contextlib.asynccontextmanager
async def topology(world: World, levels: list[str], tree: Tree) -> AsyncIterator[str]:
    """A tree with the name of the world for the block; returns the name."""
    path = "/api/v1/namespaces/default/configmaps"
    metadata = {"name": world.name, "namespace": "default", "labels": {"sakkara.topology": ""}}
    data = {"name": world.name, "level-names": json.dumps(levels), "tree": json.dumps(_objects(tree))}
    await world.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    yield world.name
    await world.cluster.try_call("DELETE", f"{path}/{world.name}")


def _objects(tree: Any) -> dict[str, Any]:
    return {node: {} for node in tree} if isinstance(tree, list) else {name: _objects(tree[name]) for name in tree}


class ObservedGroups:
    """The statuses that ConfigMaps and pods of a world have had, from the first moment on."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.statuses = defaultdict[str, list[str]](list)
        """Statuses of each group, in order, without repetitions; none until the first is written."""
        self.first_labels: dict[str, dict[str, str]] = {}
        """Labels that pods had when they were first observed with a node, by name."""
        self._cluster, self._namespace = cluster, namespace
        self._data: dict[str, dict[str, str]] = {}

    async def follow(self, tasks: list[asyncio.Task[None]]) -> None:
        """Start watching; returns when the current state is known."""
        for kind, on_change in (("configmaps", self._on_map), ("pods", self._on_pod)):
            listed = asyncio.Event()
            path = f"/api/v1/namespaces/{self._namespace}/{kind}"
            tasks.append(asyncio.create_task(follow_kind(self._cluster.session, path, on_change, listed)))
            await asyncio.wait_for(listed.wait(), CALL_SECONDS)

    def data(self, workload: Workload) -> dict[str, str]:
        """The current data of its ConfigMap."""
        return self._data.get(workload.name, {})

    def placement(self, workload: Workload) -> Any:
        """The placement in its ConfigMap."""
        return json.loads(self.data(workload)["placement"])

    def ranks(self, workload: Workload) -> dict[str, int]:
        """Ranks by pod in its ConfigMap."""
        pairs = self.data(workload)["rank"].removeprefix("[(").removesuffix(")]").split(") (")
        return {pod: int(rank) for pod, rank in (pair.split(",") for pair in pairs)}

    def labels(self, workload: Workload) -> dict[str, dict[str, str]]:
        """Current labels of its pods, by name."""
        keys = [(self._namespace, workload.pod_name(number)) for number in range(workload.size)]
        pods = [self._cluster.pods[key] for key in keys if key in self._cluster.pods]
        return {pod["metadata"]["name"]: pod["metadata"].get("labels") or {} for pod in pods}

    async def wait_for_data(self, workload: Workload, **data: str) -> dict[str, str]:
        """Wait until its ConfigMap contains this; returns all its data."""
        what = f"the ConfigMap of {workload.name} says {data}"
        await self._until(lambda: data.items() <= self.data(workload).items(), what, workload)
        return self.data(workload)

    async def wait_for_labels(self, workload: Workload, **labels: str) -> dict[str, dict[str, str]]:
        """Wait until all its pods have these labels, by the last part of their keys; returns all labels by pod."""
        wanted = {f"sakkara.member.{key}": value for key, value in labels.items()}

        def all_have() -> bool:
            found = self.labels(workload)
            return len(found) == workload.size and all(wanted.items() <= each.items() for each in found.values())

        await self._until(all_have, f"the pods of {workload.name} have {wanted}", workload)
        return self.labels(workload)

    async def _until(self, condition: Any, what: str, workload: Workload) -> None:
        try:
            await self._cluster.until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\nConfigMap: {self.data(workload)}\npods: {self.labels(workload)}") from None

    def _on_map(self, change: str, config_map: JSON) -> None:
        name, data = config_map["metadata"]["name"], config_map.get("data") or {}
        self._data[name] = {} if change == "DELETED" else data
        if (status := data.get("status")) and self.statuses[name][-1:] != [status]:
            self.statuses[name].append(status)
        self._cluster.view.touch()

    def _on_pod(self, change: str, pod: JSON) -> None:
        if node_of(pod) and change != "DELETED":
            self.first_labels.setdefault(pod["metadata"]["name"], dict(pod["metadata"].get("labels") or {}))


@contextlib.asynccontextmanager
async def following(world: World) -> AsyncIterator[ObservedGroups]:
    """Statuses in the world's namespace during the block."""
    observed, tasks = ObservedGroups(world.cluster, world.name), list[asyncio.Task[None]]()
    try:
        await observed.follow(tasks)
        yield observed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
