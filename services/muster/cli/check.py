"""`muster check`: starts a gang of two pods, waits until both run, and deletes them: an end-to-end smoke test."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import msgspec
import typer

from muster.cli.errors import CliError
from muster.config.settings import CannotStart, KubeSettings
from muster.kube.json_repair import repaired
from muster.kube.responses import KubeUnreachable
from muster.kube.session import ApiStatusError, KubeSession

_PODS: Final = 2
_CALL_SECONDS: Final = 10.0
_GANG: Final = "pod-group.scheduling.sigs.k8s.io/name"
_MINIMUM: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_ENDED: Final = ("Failed", "Succeeded")

JSON = dict[str, Any]


@dataclass(frozen=True)
class CheckOptions:
    """Options of one check."""

    kube: KubeSettings
    namespace: str
    scheduler_name: str
    image: str
    timeout_seconds: float


def check(options: CheckOptions) -> None:
    """Raises CliError if the pods do not run in time, with their last status."""
    try:
        asyncio.run(_check(options))
    except (CannotStart, KubeUnreachable) as error:
        raise CliError(str(error)) from error


async def _check(options: CheckOptions) -> None:
    session = await KubeSession.connect(options.kube, connections=4)
    gang = f"muster-check-{uuid4().hex[:8]}"
    try:
        began = time.monotonic()
        try:
            for number in range(_PODS):
                await _create(session, options, _pod(gang, number, options))
            seen: dict[str, JSON] = {}
            try:
                async with asyncio.timeout(options.timeout_seconds):
                    await _until_running(session, options, gang, seen)
            except TimeoutError:
                raise CliError(
                    f"the gang did not start within {options.timeout_seconds:g} s: {_status(gang, seen)}"
                ) from None
            typer.echo(f"a gang of {_PODS} pods runs, {time.monotonic() - began:.1f} s after it was created")
        finally:
            await asyncio.shield(_delete(session, options, gang))
    finally:
        await session.close()


async def _create(session: KubeSession, options: CheckOptions, pod: JSON) -> None:
    answer = await session.request("POST", _path(options), body=msgspec.json.encode(pod), timeout_seconds=_CALL_SECONDS)
    if answer.status >= 300:
        raise CliError(f"the API server rejected a pod: {ApiStatusError.from_response(answer)}")


async def _until_running(session: KubeSession, options: CheckOptions, gang: str, seen: dict[str, JSON]) -> None:
    """List and watch the pods until both run; `seen` collects their latest versions by name."""
    selector = {"labelSelector": f"{_GANG}={gang}"}
    while True:
        listed = await session.request("GET", _path(options), query=selector, timeout_seconds=_CALL_SECONDS)
        if listed.status != 200:
            raise CliError(f"cannot list pods: {ApiStatusError.from_response(listed)}")
        body = msgspec.json.decode(repaired(listed.body))
        for pod in body["items"]:
            seen[pod["metadata"]["name"]] = pod
        if _all_run(seen):
            return
        since = {"watch": "true", "resourceVersion": body["metadata"]["resourceVersion"]}
        with suppress(KubeUnreachable):  # then list again
            async with session.stream(_path(options), {**selector, **since}, read_timeout_seconds=300) as (
                status,
                lines,
            ):
                if status != 200:
                    raise CliError(f"cannot watch pods: the API server answered {status}")
                async for line in lines:
                    change = msgspec.json.decode(repaired(line))
                    if change["type"] == "ERROR":
                        break
                    seen[change["object"]["metadata"]["name"]] = change["object"]
                    if _all_run(seen):
                        return


def _all_run(seen: Mapping[str, JSON]) -> bool:
    phases = [pod.get("status", {}).get("phase") for pod in seen.values()]
    if ended := next((phase for phase in phases if phase in _ENDED), None):
        raise CliError(f"a pod has ended with phase {ended}: its image must run until it is stopped (--image)")
    return phases == ["Running"] * _PODS


def _status(gang: str, seen: Mapping[str, JSON]) -> str:
    """Phase, node and first false condition of each pod."""
    lines = []
    for name, pod in sorted(seen.items()):
        status = pod.get("status", {})
        conditions = [each for each in status.get("conditions") or () if each.get("status") == "False"]
        why = next((each.get("message") or each.get("reason") for each in conditions), "")
        node = pod["spec"].get("nodeName")
        lines.append(f"{name} is {status.get('phase', 'Pending')} on {node or 'no node'}{f' ({why})' if why else ''}")
    return "; ".join(lines) or f"no pod of {gang} was seen"


async def _delete(session: KubeSession, options: CheckOptions, gang: str) -> None:
    for number in range(_PODS):
        with suppress(KubeUnreachable):
            await session.request("DELETE", f"{_path(options)}/{gang}-{number}", timeout_seconds=_CALL_SECONDS)


def _path(options: CheckOptions) -> str:
    return f"/api/v1/namespaces/{options.namespace}/pods"


def _pod(gang: str, number: int, options: CheckOptions) -> JSON:
    """Manifest that the Restricted Pod Security Standard admits."""
    container = {
        "name": "main",
        "image": options.image,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-{number}", "labels": {_GANG: gang, _MINIMUM: str(_PODS)}},
        "spec": {
            "schedulerName": options.scheduler_name,
            "containers": [container],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
        },
    }
