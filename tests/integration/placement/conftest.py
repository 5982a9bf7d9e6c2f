"""A placement service with two nodes, and its cluster-state stream."""

from collections.abc import AsyncIterator

import pytest

from builders.clusterstate.stream import ClusterStream
from builders.placement.service import Placement, running, snapshot


@pytest.fixture
def stream() -> ClusterStream:
    return ClusterStream()


@pytest.fixture
async def placement(stream: ClusterStream) -> AsyncIterator[Placement]:
    """Two nodes of 4 cpu, at pods revision 10."""
    stream.opens_with(snapshot("a", "b"), {"pods": 10, "nodes": 5})
    async with running(stream) as service:
        await service.until_ready()
        yield service
