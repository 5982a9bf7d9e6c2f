"""A controller's process against a control plane, with its CRDs and webhooks registered."""

import asyncio
import base64
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from builders.wait import eventually
from interop.control_plane import ControlPlane, program
from interop.controllers import GO, Controller, Place
from muster.kube.session import KubeSession
from muster.localcluster.certificates import Authority
from muster.localcluster.child_process import Child
from muster.localcluster.manifests import Manifest, apply_manifests, load_manifests
from muster.localcluster.ports import free_port
from muster.localcluster.probes import Probe, http_ready, wait_until_ready

_START_SECONDS: Final = 120.0
_CALL_SECONDS: Final = 20.0


class RunningController:
    """A controller's process, which scenarios kill and start."""

    def __init__(self, child: Child, ready: Probe, webhooks: Sequence[Manifest] = ()) -> None:
        self._child, self._ready, self._webhooks = child, ready, webhooks

    @property
    def running(self) -> bool:
        return self._child.running

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        return self._child.pid

    async def start(self) -> None:
        """Start it unless it runs; returns when it is ready. Raises ChildDied and TimeoutError."""
        if not self._child.running:
            await self._child.start()
        async with asyncio.timeout(_START_SECONDS):
            await wait_until_ready(self._child, self._ready)

    async def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        await self._child.kill()

    async def stop(self, session: KubeSession) -> None:
        """Remove its webhooks, and stop it."""
        for each in self._webhooks:
            path = f"/apis/{each.api_version}/{each.kind.lower()}s/{each.name}"
            await session.request("DELETE", path, timeout_seconds=_CALL_SECONDS)
        await self._child.stop()


def kube_controller_manager(plane: ControlPlane) -> RunningController:
    """The controller manager of the control plane."""
    return RunningController(plane.controllers, plane.controllers_are_ready)


async def installed(controller: Controller, session: KubeSession, plane: ControlPlane) -> RunningController:
    """Register its CRDs, objects and webhooks, and start it. Raises NotBuilt, ManifestRejected and ChildDied."""
    directory = plane.directory / "controllers" / controller.name
    place = Place(directory, plane.kubeconfig, controller.health_port or free_port(), free_port())
    shutil.rmtree(directory, ignore_errors=True)
    place.certificates.mkdir(parents=True)
    authority = Authority(directory / "tls", controller.name)
    await authority.create()
    await authority.issue("webhook")
    for ending, name in (("crt", "tls.crt"), ("key", "tls.key")):
        (directory / "tls" / f"webhook.{ending}").rename(place.certificates / name)
    if controller.certificates_below_etc:
        shutil.copytree(place.certificates, place.etc / controller.certificates_below_etc)
    module = await register(controller, session)
    await apply_manifests(session, map(Manifest, controller.objects))
    if controller.configuration is not None:
        place.configuration.write_bytes(msgspec.json.encode(controller.configuration(place)))
    for path, text in controller.scripts(place).items():
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    child = Child(
        controller.name,
        _command(controller, place),
        directory / "log",
        environment={"KUBECONFIG": str(plane.kubeconfig), "TMPDIR": str(directory), **controller.environment(place)},
    )
    ready = http_ready(f"127.0.0.1:{place.health_port}", controller.ready_path)
    found = [each for pattern in controller.webhooks for each in _manifests(module, pattern)]
    webhooks = [_local(controller, each, place, authority) for each in found]
    running = RunningController(child, ready, webhooks)
    await running.start()
    await apply_manifests(session, webhooks)
    return running


async def register(controller: Controller, session: KubeSession) -> Path:
    """Register its CRDs; returns the directory of its module. Raises ManifestRejected."""
    module = await module_directory(controller)
    definitions = [each for pattern in controller.crds for each in _manifests(module, pattern)]
    if controller.newest_versions_only:
        definitions = [_with_newest_version(each) for each in definitions]
    await apply_manifests(session, definitions)
    for each in definitions:
        await eventually(partial(_is_served, session, each), f"the API server serves {each.name}")
    return module


def _command(controller: Controller, place: Place) -> list[str]:
    """The command line; raises NotBuilt."""
    command = [program(controller.name), *controller.arguments(place)]
    if not controller.certificates_below_etc:
        return command
    script = f'mount --bind {place.etc} /etc && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *command]


async def module_directory(controller: Controller) -> Path:
    """The source of its Go module, as Go has downloaded it."""
    return Path(await _of_module(controller, "{{.Dir}}"))


async def module_version(controller: Controller) -> str:
    """The version of its Go module."""
    return await _of_module(controller, "{{.Version}}")


async def _of_module(controller: Controller, template: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("go", "-C", str(GO / controller.name), "list", "-m", "-f", template, controller.module),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, f"Go does not find {controller.module}: run `make interop`"
    return output.decode().strip()


def _manifests(module: Path, pattern: str) -> list[Manifest]:
    files = sorted(module.glob(pattern))
    assert files, f"{module} has no {pattern}"
    return [each for file in files for each in load_manifests(file)]


def _with_newest_version(definition: Manifest) -> Manifest:
    spec = definition.body["spec"]
    newest = {**spec["versions"][-1], "served": True, "storage": True}
    return Manifest({**definition.body, "spec": {**spec, "versions": [newest]}})


async def _is_served(session: KubeSession, definition: Manifest) -> bool:
    """Whether the newest version of a kind is in the API server's discovery document."""
    spec = definition.body["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][-1]['name']}"
    answer = await session.request("GET", path, timeout_seconds=_CALL_SECONDS)
    found = msgspec.json.decode(answer.body)["resources"] if answer.status == 200 else ()
    return any(each["name"] == spec["names"]["plural"] for each in found)


def _local(controller: Controller, manifest: Manifest, place: Place, authority: Authority) -> Manifest:
    """A webhook configuration that calls the process on this machine instead of a Service."""
    bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
    webhooks = []
    for each in manifest.body["webhooks"]:
        if controller.only_webhooks and each["name"] not in controller.only_webhooks:
            continue
        url = f"https://127.0.0.1:{place.webhook_port}{each['clientConfig']['service']['path']}"
        changed = {**each, "clientConfig": {"url": url, "caBundle": bundle}}
        if (selector := controller.object_selectors.get(each["name"])) is not None:
            changed["objectSelector"] = selector
        webhooks.append(changed)
    metadata = {**manifest.metadata, "name": f"{controller.name}-{manifest.name}"}
    return Manifest({**manifest.body, "metadata": metadata, "webhooks": webhooks})
