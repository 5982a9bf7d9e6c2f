"""Client of the coordinator: Explain, Records and Leader, from whichever replica leads."""

import asyncio
from collections import OrderedDict
from typing import Final

import grpc
from grpc import aio
from msgspec import DecodeError, Struct

from muster.console.records import Record, decode_record
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from muster.rpc.errors import describe

_CALL_SECONDS: Final = 5.0
_RECORDS_SECONDS: Final = 30.0
_ATTEMPTS: Final = 5
"""The channel goes round the replicas, and only the leader answers."""
_SAME_SECONDS: Final = 1.0
"""An explanation is computed no more often, however many people look at the gang."""
_MAX_EXPLANATIONS: Final = 1000


class NoAnswer(RuntimeError):
    """The coordinator does not answer; the message says why."""


class UnknownGang(LookupError):
    """There is no such gang."""


class _Explanation(Struct, frozen=True):
    asked_at: float
    version: int
    answer: "asyncio.Task[pb.ExplainResponse]"


class CoordinatorClient:
    """Calls the coordinator."""

    def __init__(self, channel: aio.Channel) -> None:
        self.stub = pb_grpc.CoordinatorServiceStub(channel)
        self._explanations: OrderedDict[str, _Explanation] = OrderedDict()

    async def explain(self, gang: str, version: int = 0) -> pb.ExplainResponse:
        """The explanation of a gang, at most a second old, and not older than this version of its row.

        Raises UnknownGang and NoAnswer.
        """
        now = asyncio.get_running_loop().time()
        known = self._explanations.get(gang)
        next_at = known.asked_at + _SAME_SECONDS if known is not None else now
        if known is None or now >= next_at or known.version < version:
            asked_at = max(now, next_at)
            task = asyncio.create_task(self._explain(gang, asked_at - now))
            task.add_done_callback(_retrieve)
            known = _Explanation(asked_at, version, task)
            self._explanations[gang] = known
            self._explanations.move_to_end(gang)
            while len(self._explanations) > _MAX_EXPLANATIONS:
                self._explanations.popitem(last=False)
        return await asyncio.shield(known.answer)

    async def records(self) -> dict[str, Record]:
        """The records of all gangs that have one. Raises NoAnswer."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._records()
            except aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or attempt == _ATTEMPTS:
                    raise NoAnswer(describe(error)) from error
            except DecodeError as error:
                raise NoAnswer(f"the records cannot be read, so it is of another version: {error}") from error
        raise AssertionError("each attempt returns or raises")

    async def leader(self) -> str:
        """Name of the replica that leads; "" if none does. Raises NoAnswer."""
        try:
            answer = await self.stub.Leader(pb.LeaderRequest(), timeout=_CALL_SECONDS)
        except aio.AioRpcError as error:
            raise NoAnswer(describe(error)) from error
        return answer.identity

    async def _explain(self, gang: str, pause_seconds: float) -> pb.ExplainResponse:
        await asyncio.sleep(pause_seconds)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self.stub.Explain(pb.ExplainRequest(gang=gang), timeout=_CALL_SECONDS)
            except aio.AioRpcError as error:
                if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT):
                    raise UnknownGang(error.details() or gang) from error
                if error.code() is not grpc.StatusCode.UNAVAILABLE or attempt == _ATTEMPTS:
                    raise NoAnswer(describe(error)) from error
        raise AssertionError("each attempt returns or raises")

    async def _records(self) -> dict[str, Record]:
        records: dict[str, Record] = {}
        async for message in self.stub.Records(pb.RecordsRequest(), timeout=_RECORDS_SECONDS):
            for content in message.records:
                record = decode_record(content)
                records[record.gang] = record
            await asyncio.sleep(0)
        return records


def _retrieve(task: "asyncio.Task[pb.ExplainResponse]") -> None:
    """Its error is of interest only to those that still wait."""
    if not task.cancelled():
        task.exception()
