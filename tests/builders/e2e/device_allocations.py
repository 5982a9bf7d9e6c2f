"""Devices that ResourceClaims have, as the API reports them, and devices that several claims have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from builders.e2e.world import World
from builders.kube.watch import Change, follow_kind

_LIST_SECONDS = 60.0


class DeviceAllocations:
    """The devices of the claims in the namespace of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.devices: dict[str, frozenset[str]] = {}
        """"pool/device" by name of the claim, of those that are allocated."""
        self.consumers: dict[str, tuple[str, ...]] = {}
        """Names of pods by name of the claim."""
        self.twice: list[str] = []
        """Devices that two claims had at the same time, bound pods or not."""

    @property
    def overlaps(self) -> list[str]:
        """Devices that several claims have, and that all of them have bound pods for."""
        users: dict[str, list[str]] = {}
        for claim, devices in self.devices.items():
            if self._is_in_use(claim):
                for device in devices:
                    users.setdefault(device, []).append(claim)
        return [f"{device}: {', '.join(claims)}" for device, claims in users.items() if len(claims) > 1]

    def _is_in_use(self, claim: str) -> bool:
        pods = (self._world.cluster.pods.get((self._world.name, pod)) for pod in self.consumers.get(claim, ()))
        return any(pod is not None and pod["spec"].get("nodeName") for pod in pods)

    def _on_claim(self, change: Change, claim: dict[str, Any]) -> None:
        name, status = claim["metadata"]["name"], claim.get("status") or {}
        if change == "DELETED" or not status.get("allocation"):
            self.devices.pop(name, None)
            self.consumers.pop(name, None)
        else:
            results = status["allocation"]["devices"]["results"]
            devices = frozenset(f"{each['pool']}/{each['device']}" for each in results)
            others = ((other, devices & theirs) for other, theirs in self.devices.items() if other != name)
            self.twice += [f"{sorted(both)}: {name}, {other}" for other, both in others if both]
            self.devices[name] = devices
            self.consumers[name] = tuple(each["name"] for each in status.get("reservedFor") or ())
        self._world.cluster.view.touch()


@asynccontextmanager
async def followed_allocations(world: World) -> AsyncIterator[DeviceAllocations]:
    """The allocations of a world, kept current until the end of the block."""
    allocations, listed = DeviceAllocations(world), asyncio.Event()
    path = f"/apis/resource.k8s.io/v1/namespaces/{world.name}/resourceclaims"
    following = asyncio.create_task(follow_kind(world.cluster.session, path, allocations._on_claim, listed))
    try:
        await asyncio.wait_for(listed.wait(), _LIST_SECONDS)
        yield allocations
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
