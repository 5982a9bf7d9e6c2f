"""Marks of gangs that waited too long, on their way to binding: of each pod only the newest, until it is written.

Nobody sees it when a mark is missing, so they are not given up like reports: what failed for some pods is repeated for
all of the call, which is safe, with pauses that grow.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from grpc import aio
from msgspec import Struct

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.coordinator.core.effects import MarkTimedOut
from muster.coordinator.core.events import PodName
from muster.coordinator.writes import MOST_WRITES_PER_CALL, WRITE_TIMEOUT_SECONDS, is_final
from muster.dialects.registry import timeout_annotations
from muster.retry.retrying import Backoff
from muster.rpc.errors import describe

LONGEST_PAUSE_SECONDS: Final = 10.0

_log = structlog.get_logger()


class _Mark(Struct, frozen=True):
    pod: PodName
    annotations: Mapping[str, str | None]
    """None: to be removed."""


class TimeoutMarks:
    """Marks that wait for binding, in the name of one leader."""

    def __init__(self, channel: aio.Channel, leader_epoch: int) -> None:
        self._stub = pb_grpc.BindingServiceStub(channel)
        self._epoch = leader_epoch
        self._waiting: dict[str, _Mark] = {}
        self._something = asyncio.Event()

    def put(self, effect: MarkTimedOut) -> None:
        """To be written, if the gang's dialect has such a mark."""
        annotations = timeout_annotations(effect.gang, effect.timed_out)
        if not annotations:
            return
        self._waiting.update((pod.uid, _Mark(pod, annotations)) for pod in effect.pods)
        self._something.set()

    async def write(self) -> None:
        """Write what is put, for ever."""
        backoff = Backoff(longest_seconds=LONGEST_PAUSE_SECONDS)
        while True:
            await self._something.wait()
            marks = [self._waiting.pop(uid) for uid in list(self._waiting)[:MOST_WRITES_PER_CALL]]
            if not self._waiting:
                self._something.clear()
            if not marks or await self._write(marks):
                backoff.reset()
                continue
            for mark in marks:
                self._waiting.setdefault(mark.pod.uid, mark)
            self._something.set()
            await backoff.pause()

    async def _write(self, marks: Sequence[_Mark]) -> bool:
        """False: it is to be tried again."""
        request = pb.WriteRequest(leader_epoch=self._epoch, annotations=[_message(mark) for mark in marks])
        try:
            response = await self._stub.Write(request, timeout=WRITE_TIMEOUT_SECONDS)
        except aio.AioRpcError as error:
            final = is_final(error)
            say = _log.error if final else _log.warning
            say("timeout marks given up" if final else "timeout marks could not be written", reason=describe(error))
            return final
        for failure in response.failures:
            _log.warning("timeout mark not written", failure=failure)
        return not response.failures


def _message(mark: _Mark) -> pb.PodAnnotations:
    return pb.PodAnnotations(
        pod=pb.PodName(uid=mark.pod.uid, namespace=mark.pod.namespace, name=mark.pod.name),
        set={key: value for key, value in mark.annotations.items() if value is not None},
        remove=[key for key, value in mark.annotations.items() if value is None],
    )
