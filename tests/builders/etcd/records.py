"""The coordinator's records in etcd with their history, read through etcd's JSON gateway."""

import asyncio
import base64
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from builders.wait import latency
from muster.coordinator.v1 import record_pb2

PREFIX = "/muster/v1/gangs/"
_RETRY_SECONDS = 0.1


class EtcdRecords:
    """Records by gang id: current ones and all earlier ones."""

    def __init__(self, endpoints: str, on_change: Callable[[str, record_pb2.GangRecord | None], None]) -> None:
        """`endpoints` is "HOST:PORT[,HOST:PORT...]"."""
        self._endpoints = itertools.cycle(endpoints.split(","))
        self._endpoint = next(self._endpoints)
        self._on_change = on_change
        self._revision = 0
        self._since: dict[str, int] = {}
        self.present: dict[str, record_pb2.GangRecord] = {}
        self.history: defaultdict[str, list[record_pb2.GangRecord]] = defaultdict(list)

    async def follow(self) -> None:
        """Follow changes until cancelled, also over restarts of etcd."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async for revision, key, value in self._changes(PREFIX, _end_of(PREFIX), self._revision + 1):
                    self._take(key, value)
                    self._revision = revision
            self._endpoint = next(self._endpoints)
            await latency(_RETRY_SECONDS)

    async def stored(self) -> list[str]:
        """Gangs with a record in etcd now, by a direct read. Raises ClientError and OSError."""
        request = {"key": _base64(PREFIX), "range_end": _base64(_end_of(PREFIX)), "keys_only": True}
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.post(f"http://{self._endpoint}/v3/kv/range", json=request) as response,
        ):
            found = await response.json()
        return [base64.b64decode(one["key"]).decode().removeprefix(PREFIX) for one in found.get("kvs", ())]

    def permit(self, gang: str, *, seconds: float) -> Awaitable[record_pb2.GangRecord | None]:
        """The first permit of the gang; reads etcd if none has been seen yet. Applies to the gang at the time of the
        call, even if it is forgotten before the answer arrives.
        """
        found = next(filter(_is_permit, self.history[gang]), None)
        return self._permit(gang, found, self._since.get(gang, 0) + 1, seconds)

    async def _permit(
        self, gang: str, found: record_pb2.GangRecord | None, start: int, seconds: float
    ) -> record_pb2.GangRecord | None:
        if found is not None:
            return found
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(aiohttp.ClientError, OSError):
                        async for _, _, value in self._changes(PREFIX + gang, "", start):
                            record = record_pb2.GangRecord.FromString(value or b"")
                            if _is_permit(record):
                                return record
                    await latency(_RETRY_SECONDS)
        return None

    def forget(self, gang: str) -> None:
        """Forget a deleted gang, so that its records do not count for a later gang of the same name."""
        self.history.pop(gang, None)
        self._since[gang] = self._revision

    def begin_anew(self) -> None:
        """Reset revisions before etcd restarts from a snapshot or empty; call while etcd is down."""
        self._revision = 0
        self._since.clear()

    def _take(self, key: str, value: bytes | None) -> None:
        gang = key.removeprefix(PREFIX)
        record = None if value is None else record_pb2.GangRecord.FromString(value)
        if record is None:
            self.present.pop(gang, None)
        else:
            self.present[gang] = record
            self.history[gang].append(record)
        self._on_change(gang, record)

    async def _changes(self, key: str, end: str, start: int) -> AsyncIterator[tuple[int, str, bytes | None]]:
        """Revision, key and value of every change until the watch ends. Raises ClientError and OSError."""
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout, read_bufsize=2**24) as session:
            while start:
                request = {"key": _base64(key), "range_end": _base64(end), "start_revision": str(start)}
                start = 0
                async with session.post(
                    f"http://{self._endpoint}/v3/watch", json={"create_request": request}
                ) as response:
                    async for line in _lines(response):
                        result = msgspec.json.decode(line).get("result", {})
                        for event in result.get("events", ()):
                            yield _change(event)
                        if result.get("canceled"):
                            start = int(result.get("compact_revision", 0))  # the first that there still is
                            break


def _change(event: Mapping[str, Any]) -> tuple[int, str, bytes | None]:
    stored = event["kv"]
    value = None if event.get("type") == "DELETE" else base64.b64decode(stored.get("value", ""))
    return int(stored["mod_revision"]), base64.b64decode(stored["key"]).decode(), value


def _is_permit(record: record_pb2.GangRecord) -> bool:
    return record.state == record_pb2.GangRecord.STATE_BINDING


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            yield line


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _end_of(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
