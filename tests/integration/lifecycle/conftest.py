"""Fixtures: an API server for every test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.lifecycle.replicas import LifecycleCluster, lifecycle_cluster


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LifecycleCluster]:
    async with lifecycle_cluster(tmp_path) as rig:
        yield rig
