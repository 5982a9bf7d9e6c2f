"""Keeps channels connected that have no calls."""

import asyncio
from collections.abc import Iterable
from typing import Final

from grpc import aio

_LOOK_SECONDS: Final = 1.0


async def keep_connected(channels: Iterable[aio.Channel]) -> None:
    """Connects channels, and again whenever they are idle, forever.

    A channel without calls resolves the server's name and connects at its first call. For a standby that becomes the
    leader that is while a node is lost, perhaps with half of the cluster's DNS, whose timeouts take seconds. A channel
    that is connected keeps the addresses that it knows for as long as DNS does not answer.
    """
    kept = tuple(channels)
    while True:
        for channel in kept:
            channel.get_state(try_to_connect=True)
        # Looks at intervals: a wait for a change that is cancelled stays in gRPC until the state changes, and a channel
        # whose certificate is renewed is replaced.
        await asyncio.sleep(_LOOK_SECONDS)
