"""History of the coordinators' writes in etcd, in order, read through etcd's JSON gateway."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from muster.coordinator.v1.record_pb2 import GangRecord

_PREFIX = "/muster/v1/"
_END = "/muster/v10"
_SECONDS = 60.0


@dataclass(frozen=True)
class Write:
    """A gang's record, or its deletion, at a revision of etcd."""

    revision: int
    gang: str
    record: GangRecord | None


@dataclass
class EtcdHistory:
    """All writes since the beginning."""

    url: str
    writes: list[Write] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    """Create revisions of the leader key: the leaders' epochs."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, gang: str) -> list[GangRecord]:
        """All records of a gang."""
        return [each.record for each in self.writes if each.gang == gang and each.record is not None]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the condition holds."""
        async with asyncio.timeout(_SECONDS):
            while not holds():
                self._more.clear()
                await self._more.wait()

    async def complete(self) -> None:
        """Wait until the history includes etcd's current revision."""
        async with aiohttp.ClientSession() as session:
            request = {"key": _base64(_PREFIX), "range_end": _base64(_END)}
            async with session.post(f"{self.url}/v3/kv/range", json=request) as response:
                found = msgspec.json.decode(await response.read())
        newest = max((int(kv["mod_revision"]) for kv in found.get("kvs", ())), default=0)
        await self.until(lambda: max([*self.terms, *(each.revision for each in self.writes)], default=0) >= newest)

    async def follow(self) -> None:
        """Follow writes until cancelled."""
        request = {"key": _base64(_PREFIX), "range_end": _base64(_END), "start_revision": "1"}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), read_bufsize=2**24) as session,
            session.post(f"{self.url}/v3/watch", json={"create_request": request}) as response,
        ):
            async for line in response.content:
                for event in msgspec.json.decode(line).get("result", {}).get("events", ()):
                    self._take(event)
                self._more.set()

    def _take(self, event: dict[str, Any]) -> None:
        kv = event["kv"]
        key, revision = base64.b64decode(kv["key"]).decode().removeprefix(_PREFIX), int(kv["mod_revision"])
        deleted = event.get("type") == "DELETE"
        if key == "leader":
            if not deleted:
                self.terms.append(revision)
        elif key.startswith("gangs/"):
            record = None if deleted else GangRecord.FromString(base64.b64decode(kv.get("value", "")))
            self.writes.append(Write(revision, key.removeprefix("gangs/"), record))


@contextlib.asynccontextmanager
async def history_of(endpoint: str) -> AsyncIterator[EtcdHistory]:
    """The history of an etcd, followed from its beginning."""
    history = EtcdHistory(f"http://{endpoint}")
    following = asyncio.create_task(history.follow())
    try:
        yield history
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
