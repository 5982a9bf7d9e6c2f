"""`muster check` without a scheduler: it prints the status of the pods and deletes them."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest_asyncio

from builders.deploy.chart import bare_api_server
from builders.kube.watch import follow_kind
from muster.kube.session import KubeSession

_PODS = "/api/v1/namespaces/default/pods"
_SECONDS = 60.0


@pytest_asyncio.fixture
async def api(tmp_path: Path) -> AsyncIterator[tuple[Path, KubeSession]]:
    async with bare_api_server(tmp_path) as (kubeconfig, session):
        yield kubeconfig, session


async def check(kubeconfig: Path, *arguments: str) -> tuple[int | None, str]:
    """Exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", "check", "--kubeconfig", str(kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
    return process.returncode, output.decode()


async def remaining_pods(session: KubeSession) -> list[str]:
    answer = await session.request("GET", _PODS, timeout_seconds=20)
    return [pod["metadata"]["name"] for pod in msgspec.json.decode(answer.body)["items"]]


async def test_pending_pods_are_reported_and_deleted(api: tuple[Path, KubeSession]) -> None:
    kubeconfig, session = api
    code, output = await check(kubeconfig, "--timeout", "1")
    assert code == 1
    assert "the gang did not start within 1 s" in output and "on no node" in output
    assert not await remaining_pods(session)


async def test_an_image_that_exits_fails_the_check(api: tuple[Path, KubeSession]) -> None:
    kubeconfig, session = api
    created: asyncio.Queue[str] = asyncio.Queue()

    def seen(change: str, pod: dict[str, dict[str, str]]) -> None:
        if change == "ADDED":
            created.put_nowait(pod["metadata"]["name"])

    following = asyncio.create_task(follow_kind(session, _PODS, seen, asyncio.Event()))
    checking = asyncio.create_task(check(kubeconfig))
    try:
        name = await asyncio.wait_for(created.get(), _SECONDS)
        body = msgspec.json.encode({"status": {"phase": "Failed"}})
        merge = "application/merge-patch+json"
        path = f"{_PODS}/{name}/status"
        await session.request("PATCH", path, body=body, content_type=merge, timeout_seconds=20)
        code, output = await checking
    finally:
        following.cancel()
        checking.cancel()
    assert code == 1
    assert "ended with phase Failed" in output
    assert not await remaining_pods(session)


async def test_an_unknown_namespace_is_an_error(api: tuple[Path, KubeSession]) -> None:
    code, output = await check(api[0], "--namespace", "nowhere")
    assert code == 1
    assert "nowhere" in output
