"""An informer and the scripted API server that it follows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from builders.kube.informer import QUICK, Sink, kubeconfig
from builders.kube.scripted_server import ScriptedApi
from muster.config.settings import KubeSettings
from muster.kube.api_resources import PODS
from muster.kube.informer import Informer
from muster.kube.session import KubeSession


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi().serve() as api:
        yield api


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
async def follow(api: ScriptedApi, sink: Sink, tmp_path: Any) -> AsyncIterator[Callable[..., Any]]:
    """Starts an informer that runs until the end of the test."""
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig(api.url))
    session = await KubeSession.connect(KubeSettings(kubeconfig=config))
    tasks: list[asyncio.Task[None]] = []

    async def start(**options: Any) -> Informer[Any]:
        may = {name: options.pop(name) for name in ("optional", "dispensable") if name in options}
        resource, report = options.pop("of", PODS), options.pop("report", None)
        informer = Informer(session, replace(resource, **may), sink, replace(QUICK, **options), report)
        tasks.append(asyncio.create_task(informer.run()))
        return informer

    yield start
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await session.close()
