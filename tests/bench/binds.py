"""Observes binds, or conditions, as cheaply as possible: a watch of the API, and the time of each."""

import asyncio
import time
from typing import Any, Generic, TypeVar

import msgspec

from muster.kube.session import KubeSession

_CALL_SECONDS = 60.0


class _Metadata(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""  # noqa: N815


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Condition(msgspec.Struct):
    type: str = ""
    reason: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _PodWithStatus(_Pod):
    status: _Status = msgspec.field(default_factory=_Status)


_P = TypeVar("_P", bound=_Pod)


class _Step(msgspec.Struct, Generic[_P]):
    type: str
    object: _P


class _List(msgspec.Struct):
    metadata: _Metadata


class BindTimes:
    """Times at which the pods of a namespace were observed bound, on the monotonic clock, by pod name."""

    decoder: msgspec.json.Decoder[_Step[Any]] = msgspec.json.Decoder(_Step[_Pod])

    @staticmethod
    def counts(pod: Any) -> bool:
        """The pod is bound."""
        return bool(pod.spec.nodeName)

    def observed(self, pod: str) -> None:
        """Called once for each pod that counts."""

    def __init__(self, session: KubeSession, namespace: str) -> None:
        self._session, self._path = session, f"/api/v1/namespaces/{namespace}/pods"
        self.seen: dict[str, float] = {}
        self._wanted: set[str] = set()
        self._all_there = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Follow binds from now on."""
        listed = await self._session.request("GET", self._path, query={"limit": "1"}, timeout_seconds=_CALL_SECONDS)
        version = msgspec.json.decode(listed.body, type=_List).metadata.resourceVersion
        self._task = asyncio.create_task(self._follow(version))

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def until_failed(self) -> None:
        """Wait for the watch. Raises RuntimeError if it failed."""
        assert self._task is not None
        await asyncio.shield(self._task)

    async def all_of(self, pods: set[str], *, timeout_seconds: float) -> None:
        """Wait until all of them were observed. Raises TimeoutError, RuntimeError if the watch failed."""
        assert self._task is not None
        self._wanted = pods - self.seen.keys()
        self._all_there.clear()
        if not self._wanted:
            return
        there = asyncio.create_task(self._all_there.wait())
        done, _ = await asyncio.wait([there, self._task], timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        if self._task in done:
            self._task.result()
        if not done:
            raise TimeoutError(f"{len(self._wanted)} of {len(pods)} pods were not observed in {timeout_seconds:g} s")

    async def _follow(self, version: str) -> None:
        while True:  # kube-apiserver ends watches that are behind
            version = await self._watch(version)

    async def _watch(self, version: str) -> str:
        """Watch until the API server ends it; returns the last version that was seen."""
        query = {"watch": "true", "resourceVersion": version}
        async with self._session.stream(self._path, query, read_timeout_seconds=3600) as (status, lines):
            if status != 200:
                raise RuntimeError(f"watch of {self._path}: status {status}")
            async for line in lines:
                step = self.decoder.decode(line)
                if step.type == "ERROR":
                    raise RuntimeError(f"watch of {self._path}: {line.decode()}")
                pod = step.object
                version = pod.metadata.resourceVersion
                if self.counts(pod) and pod.metadata.name not in self.seen:
                    self.seen[pod.metadata.name] = time.monotonic()
                    self.observed(pod.metadata.name)
                    self._wanted.discard(pod.metadata.name)
                    if not self._wanted:
                        self._all_there.set()
        return version


class UnschedulableTimes(BindTimes):
    """Times at which pods were observed with the condition that autoscalers act on."""

    decoder = msgspec.json.Decoder(_Step[_PodWithStatus])

    @staticmethod
    def counts(pod: Any) -> bool:
        """The pod asks for nodes."""
        return any(each.type == "PodScheduled" and each.reason == "Unschedulable" for each in pod.status.conditions)
