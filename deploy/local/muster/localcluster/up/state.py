"""What `muster up` knows at this moment: gangs, processes, notices. Tasks that find out write it, views read it."""

import asyncio
import time
from collections import deque

import grpc

from muster.cli.gangs import apply_step
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.coordinator.v1.coordinator_pb2 import Gang
from muster.localcluster.stack import Stack
from muster.rpc.channel import open_channel

_NOTICES = 5
_RECONNECT_SECONDS = 0.5
_CHECK_SECONDS = 1.0


class Picture:
    """Everything there is to show."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}
        self.serving: dict[str, bool] = {}
        """Processes by name: whether each answered when asked last."""
        self.notices: deque[str] = deque(maxlen=_NOTICES)
        self.ready = False
        """Everything has been started."""
        self.gangs_changed_at = time.monotonic()
        self.version = 0
        self._news = asyncio.Event()

    def notice(self, text: str) -> None:
        """Something worth a line."""
        self.notices.append(text)
        self.touch()

    def apply(self, step: coordinator_pb2.WatchResponse) -> None:
        """Take in a step of the coordinator's Watch."""
        apply_step(self.gangs, step)
        self.gangs_changed_at = time.monotonic()
        self.touch()

    def touch(self) -> None:
        """Say that something is new."""
        self.version += 1
        self._news.set()
        self._news = asyncio.Event()

    async def newer_than(self, version: int) -> int:
        """Wait until there is something new after that version; returns the newest."""
        while self.version <= version:
            await self._news.wait()
        return self.version


async def check(stack: Stack, picture: Picture) -> None:
    """Ask every process once a second, for ever, whether it serves."""
    while True:
        names = list(stack.children)
        answers = await asyncio.gather(*(stack.serving(name) for name in names))
        if (serving := dict(zip(names, answers, strict=True))) != picture.serving:
            picture.serving = serving
            picture.touch()
        await asyncio.sleep(_CHECK_SECONDS)


async def follow(address: str, picture: Picture) -> None:
    """Keep the gangs up to date for ever, whatever happens to the coordinator."""
    channel = open_channel(address, PLAIN_TEXT)
    stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    try:
        while True:
            seen: set[str] | None = set()
            try:
                async for step in stub.Watch(coordinator_pb2.WatchRequest()):
                    picture.apply(step)
                    if seen is not None:
                        seen.update(gang.id for gang in step.gangs)
                        if step.synced:
                            _drop_others(picture, seen)
                            seen = None
            except grpc.aio.AioRpcError:
                pass  # it is restarting, or does not lead yet; the views show which process is down
            await asyncio.sleep(_RECONNECT_SECONDS)
    finally:
        await channel.close()


def _drop_others(picture: Picture, seen: set[str]) -> None:
    """Gangs that went while nobody looked."""
    for gone in picture.gangs.keys() - seen:
        del picture.gangs[gone]
