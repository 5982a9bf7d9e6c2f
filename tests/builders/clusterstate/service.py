"""A replica of cluster-state in this process, and a mirror that subscribes to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from builders.clusterstate.mirror import Mirror, mirroring
from muster.clusterstate.event_passes import Pace
from muster.clusterstate.service import ClusterStateService
from muster.clusterstate.settings import Settings
from muster.config.settings import KubeSettings
from muster.kube.informer import InformerOptions
from muster.kube.session import KubeSession

QUICK = InformerOptions(retry_seconds=(0.01, 0.1), unavailable_seconds=(0.02, 0.1))
"""Short retry intervals for tests."""


@asynccontextmanager
async def replica(
    config: KubeSettings,
    event_pace: Pace = Pace(),  # noqa: B008 (frozen)
    **settings: Any,
) -> AsyncIterator[tuple[ClusterStateService, int]]:
    """A replica with these settings and its port, once all lists are complete."""
    session = await KubeSession.connect(config)
    service = ClusterStateService(session, Settings(listen="127.0.0.1:0", kube=config, **settings), QUICK, event_pace)
    port = await service.start()
    following = asyncio.create_task(service.follow())
    try:
        await service.complete.wait()
        yield service, port
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await service.stop()
        await session.close()


@asynccontextmanager
async def watching(config: KubeSettings, **settings: Any) -> AsyncIterator[Mirror]:
    """A synced mirror of a replica with these settings."""
    async with replica(config, **settings) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: True)
        yield mirror
