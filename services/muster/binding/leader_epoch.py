"""Reads the epoch of the leader from the coordinator, each replica of which reads it from etcd."""

from typing import Final

from grpc import aio

from muster.binding.leader_fence import LeaderUnknown
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1 import coordinator_pb2_grpc as pb_grpc
from muster.rpc.errors import describe

_READ_SECONDS: Final = 3.0


class LeaderEpochReader:
    """Calls any replica of the coordinator."""

    def __init__(self, channel: aio.Channel) -> None:
        self._channel = channel
        self._stub = pb_grpc.CoordinatorServiceStub(channel)

    async def __call__(self) -> int:
        """The create revision of the leader key; 0: none leads. Raises LeaderUnknown."""
        try:
            response = await self._stub.Leader(pb.LeaderRequest(), timeout=_READ_SECONDS, wait_for_ready=True)
        except aio.AioRpcError as error:
            raise LeaderUnknown(f"the coordinator did not say who leads: {describe(error)}") from error
        return int(response.epoch)

    async def close(self) -> None:
        await self._channel.close()
