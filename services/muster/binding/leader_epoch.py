"""Reads the epoch of the leader from the coordinator, each replica of which reads it from etcd."""

import asyncio
from typing import Final

from grpc import aio

from muster.binding.leader_fence import LeaderUnknown
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from muster.rpc.errors import describe

_READ_SECONDS: Final = 3.0
_NEXT_SECONDS: Final = 0.25
"""Without an answer for so long, the next replica is asked too: the one before may be frozen, as its leader may be."""
_MOST_CALLS: Final = 4


class LeaderEpochReader:
    """Calls the replicas of the coordinator in turn, until one answers."""

    def __init__(self, channel: aio.Channel) -> None:
        self._channel = channel
        self._stub = pb_grpc.CoordinatorServiceStub(channel)

    async def __call__(self) -> int:
        """The create revision of the leader key; 0: none leads. Raises LeaderUnknown."""
        calls: set[asyncio.Task[int | LeaderUnknown]] = set()
        failure: LeaderUnknown | None = None
        to_start = _MOST_CALLS
        try:
            while to_start or calls:
                if to_start:
                    to_start -= 1
                    calls.add(asyncio.create_task(self._read()))
                pause = _NEXT_SECONDS if to_start else None  # each call ends by itself
                done, calls = await asyncio.wait(calls, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for call in done:
                    result = call.result()
                    if not isinstance(result, LeaderUnknown):
                        return result
                    failure = result
        finally:
            for call in calls:
                call.cancel()
        assert failure is not None, "all calls have ended without a result"
        raise failure

    async def close(self) -> None:
        await self._channel.close()

    async def _read(self) -> int | LeaderUnknown:
        """A failure is returned, not raised: no one looks at it after another call's answer."""
        try:
            response = await self._stub.Leader(pb.LeaderRequest(), timeout=_READ_SECONDS, wait_for_ready=True)
        except aio.AioRpcError as error:
            return LeaderUnknown(f"the coordinator did not say who leads: {describe(error)}")
        return int(response.epoch)
