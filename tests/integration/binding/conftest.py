"""A binding service with its API server for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.binding.service import Rig, rig


@pytest.fixture
async def muster(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path, requests_in_flight=8) as found:
        yield found
