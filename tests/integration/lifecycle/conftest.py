"""An API server of its own for every test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.lifecycle.replicas import LifecycleRig, lifecycle_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[LifecycleRig]:
    async with lifecycle_rig(tmp_path) as rig:
        yield rig
