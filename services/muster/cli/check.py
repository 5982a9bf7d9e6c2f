"""`muster check`: starts a gang of two pods, sees both run, and takes them away: the whole way through Muster, once."""

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
from muster.kube.responses import KubeUnreachable
from muster.kube.session import ApiStatusError, KubeSession

_PODS: Final = 2
_CALL_SECONDS: Final = 10.0
_GANG: Final = "pod-group.scheduling.sigs.k8s.io/name"
_MINIMUM: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_ENDED: Final = ("Failed", "Succeeded")

JSON = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """What is tried."""

    kube: KubeSettings
    namespace: str
    scheduler_name: str
    image: str
    timeout_seconds: float


def check(trial: Trial) -> None:
    """Raises CliError if they do not run in time, with what was said of them last."""
    try:
        asyncio.run(_check(trial))
    except (CannotStart, KubeUnreachable) as error:
        raise CliError(str(error)) from error


async def _check(trial: Trial) -> None:
    session = await KubeSession.connect(trial.kube, connections=4)
    gang = f"muster-check-{uuid4().hex[:8]}"
    try:
        began = time.monotonic()
        try:
            for number in range(_PODS):
                await _create(session, trial, _pod(gang, number, trial))
            seen: dict[str, JSON] = {}
            try:
                async with asyncio.timeout(trial.timeout_seconds):
                    await _until_running(session, trial, gang, seen)
            except TimeoutError:
                raise CliError(f"not both pods run after {trial.timeout_seconds:g} s: {_told(gang, seen)}") from None
            typer.echo(f"{_PODS} pods of one gang run, {time.monotonic() - began:.1f} s after they were created")
        finally:
            await asyncio.shield(_clear(session, trial, gang))
    finally:
        await session.close()


async def _create(session: KubeSession, trial: Trial, pod: JSON) -> None:
    answer = await session.request("POST", _path(trial), body=msgspec.json.encode(pod), timeout_seconds=_CALL_SECONDS)
    if answer.status >= 300:
        raise CliError(f"the API server does not take a pod: {ApiStatusError.from_response(answer)}")


async def _until_running(session: KubeSession, trial: Trial, gang: str, seen: dict[str, JSON]) -> None:
    """Follow the pods, by list and watch, until both run; `seen` is what is known of them."""
    chosen = {"labelSelector": f"{_GANG}={gang}"}
    while True:
        listed = await session.request("GET", _path(trial), query=chosen, timeout_seconds=_CALL_SECONDS)
        if listed.status != 200:
            raise CliError(f"pods cannot be listed: {ApiStatusError.from_response(listed)}")
        body = msgspec.json.decode(listed.body)
        for pod in body["items"]:
            seen[pod["metadata"]["name"]] = pod
        if _all_run(seen):
            return
        since = {"watch": "true", "resourceVersion": body["metadata"]["resourceVersion"]}
        with suppress(KubeUnreachable):  # listed again
            async with session.stream(_path(trial), {**chosen, **since}, read_timeout_seconds=300) as (status, lines):
                if status != 200:
                    raise CliError(f"pods cannot be watched: the API server answers {status}")
                async for line in lines:
                    change = msgspec.json.decode(line)
                    if change["type"] == "ERROR":
                        break
                    seen[change["object"]["metadata"]["name"]] = change["object"]
                    if _all_run(seen):
                        return


def _all_run(seen: Mapping[str, JSON]) -> bool:
    phases = [pod.get("status", {}).get("phase") for pod in seen.values()]
    if ended := next((phase for phase in phases if phase in _ENDED), None):
        raise CliError(f"a pod that should run for ever is {ended}: does its image run here? (--image)")
    return phases == ["Running"] * _PODS


def _told(gang: str, seen: Mapping[str, JSON]) -> str:
    """What the pods say of why they do not run."""
    lines = []
    for name, pod in sorted(seen.items()):
        status = pod.get("status", {})
        conditions = [each for each in status.get("conditions") or () if each.get("status") == "False"]
        why = next((each.get("message") or each.get("reason") for each in conditions), "")
        node = pod["spec"].get("nodeName")
        lines.append(f"{name} is {status.get('phase', 'Pending')} on {node or 'no node'}{f' ({why})' if why else ''}")
    return "; ".join(lines) or f"nothing is seen of {gang}"


async def _clear(session: KubeSession, trial: Trial, gang: str) -> None:
    for number in range(_PODS):
        with suppress(KubeUnreachable):
            await session.request("DELETE", f"{_path(trial)}/{gang}-{number}", timeout_seconds=_CALL_SECONDS)


def _path(trial: Trial) -> str:
    return f"/api/v1/namespaces/{trial.namespace}/pods"


def _pod(gang: str, number: int, trial: Trial) -> JSON:
    """One that the strictest pod security standard lets in."""
    container = {
        "name": "main",
        "image": trial.image,
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
            "schedulerName": trial.scheduler_name,
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
