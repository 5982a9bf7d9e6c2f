"""Stand-in for the programs in driver pods: creates and replaces the executors of each driver that runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from builders.e2e.cluster import JSON, Cluster
from interop.spark.submit import EXECUTORS, VOLUME, Executors

_ALIVE: Final = ("Pending", "Running")
_ENDED: Final = ("Succeeded", "Failed")


@dataclass
class _Driver:
    """A driver that runs. Names of executors leave both sets when the pods have ended."""

    executors: Executors
    number: int = 0
    """Of the last executor."""
    created: set[str] = field(default_factory=set)
    observed: set[str] = field(default_factory=set)


class SparkDrivers:
    """All drivers of a cluster. An entry of a driver ends with its pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._drivers: dict[str, _Driver] = {}
        """By uid of the pod."""

    async def run(self) -> None:
        """Create and delete executors until cancelled."""
        version = -1
        while True:
            version = await self._cluster.view.newer_than(version)
            pods = [pod for pod in self._cluster.pods.values() if _role(pod) == "driver"]
            for uid in self._drivers.keys() - {_uid(pod) for pod in pods}:
                del self._drivers[uid]
            for pod in pods:
                phase = pod["status"].get("phase")
                if phase == "Running" and "deletionTimestamp" not in pod["metadata"]:
                    await self._replace_executors(pod)
                elif phase in _ENDED:
                    await self._delete(self._executors_of(pod).values())

    def _executors_of(self, pod: JSON) -> dict[str, JSON]:
        owner = _uid(pod)
        found = (each for each in self._cluster.pods.values() if _role(each) == "executor")
        return {
            each["metadata"]["name"]: each
            for each in found
            if any(reference["uid"] == owner for reference in each["metadata"].get("ownerReferences") or ())
        }

    async def _replace_executors(self, pod: JSON) -> None:
        driver = self._drivers.get(_uid(pod))
        if driver is None:
            if (executors := await self._read(pod)) is None:
                return
            driver = self._drivers[_uid(pod)] = _Driver(executors)
        present = self._executors_of(pod)
        alive = {name for name, each in present.items() if each["status"].get("phase") in _ALIVE}
        driver.observed |= present.keys()
        ended = driver.observed - alive
        driver.created -= ended
        driver.observed -= ended
        await self._delete(each for name, each in present.items() if name in ended)
        while len(driver.created) < driver.executors.instances:
            driver.number += 1
            driver.created.add(await self._create(pod, driver))

    async def _read(self, pod: JSON) -> Executors | None:
        """The executors of a driver; None if its application is being deleted."""
        [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == VOLUME]
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{volume['configMap']['name']}"
        found = await self._cluster.try_call("GET", path)
        if found.status != 200:
            return None
        return msgspec.json.decode(msgspec.json.decode(found.body)["data"][EXECUTORS], type=Executors)

    async def _create(self, pod: JSON, driver: _Driver) -> str:
        """Create an executor, unless its namespace or its driver is being deleted; returns its name."""
        metadata, template = pod["metadata"], driver.executors.pod
        name = f"{driver.executors.prefix}-exec-{driver.number}"
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        labels = template["metadata"]["labels"] | {"spark-exec-id": str(driver.number)}
        changed = template["metadata"] | {"name": name, "labels": labels, "ownerReferences": [owner]}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods"
        await self._cluster.try_call("POST", path, template | {"metadata": changed})
        return name

    async def _delete(self, pods: Iterable[JSON]) -> None:
        for each in pods:
            metadata = each["metadata"]
            if "deletionTimestamp" not in metadata:
                await self._cluster.try_call(
                    "DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                )


def _role(pod: JSON) -> str:
    return str((pod["metadata"].get("labels") or {}).get("spark-role", ""))


def _uid(pod: JSON) -> str:
    return str(pod["metadata"]["uid"])
