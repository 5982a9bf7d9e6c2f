"""The device webhook: concurrent allocations, reviewed over HTTPS by several replicas."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from builders.e2e.faults import Requests
from builders.kube.client import Reply
from builders.lifecycle.replicas import LifecycleCluster
from builders.lifecycle.webhook_service import WebhookCluster
from muster.lifecycle.device_allocations import ledger
from muster.lifecycle.device_allocations.controller import DeviceAllocationController
from muster.lifecycle.settings import DeviceSettings
from muster.localcluster.webhooks import DEVICES

JSON = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
LEDGER = "/api/v1/namespaces/default/configmaps/muster-device-allocations"


class Claims(WebhookCluster):
    """An API server with the device webhook, and users of claims."""

    async def create(self, *names: str) -> None:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        for name in names:
            await self.api.created(CLAIMS, {"metadata": {"name": name}, "spec": spec})

    async def get(self, name: str) -> JSON:
        found: JSON = (await self.api.get(f"{CLAIMS}/{name}")).body
        return found

    async def allocate(self, name: str, *devices: int) -> Reply:
        """Allocates devices as a scheduler does: it replaces the version that it read."""
        return await self.api.put(f"{CLAIMS}/{name}/status", allocated(await self.get(name), *devices))

    async def deallocate(self, name: str) -> None:
        reply = await self.api.put(f"{CLAIMS}/{name}/status", {**await self.get(name), "status": {}})
        assert reply.status == 200

    async def owners(self, device: int) -> list[str]:
        """Claims that have a device."""
        claims = (await self.api.get(CLAIMS)).body["items"]
        return [each["metadata"]["name"] for each in claims if f"gpu-{device}" in msgspec.json.encode(each).decode()]


def allocated(claim: JSON, *devices: int) -> JSON:
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "n", "device": f"gpu-{each}"} for each in devices]
    return {**claim, "status": {"allocation": {"devices": {"results": results}}}}


@pytest.fixture
async def claims(rig: LifecycleCluster, tmp_path: Path) -> AsyncIterator[Claims]:
    yield Claims(rig, tmp_path, DEVICES, DeviceAllocationController, DeviceSettings)


async def test_i3_of_concurrent_allocations_of_a_device_one_is_stored(claims: Claims) -> None:
    async with claims.guarded(replicas=2):
        names = [f"c{number}" for number in range(12)]
        await claims.create(*names)
        for device in range(3):
            replies = await asyncio.gather(*(claims.allocate(name, device) for name in names[device:]))
            assert [reply.status for reply in replies].count(200) <= 1
            assert {reply.status for reply in replies} <= {200, 403}
            assert len(await claims.owners(device)) == 1
            refused = next(reply for reply in replies if reply.status == 403)
            assert f"device gpu.example.com/n/gpu-{device} is allocated to ResourceClaim" in refused.message
            for name in await claims.owners(device):
                await claims.deallocate(name)


async def test_i3_a_replica_that_starts_knows_what_is_allocated(claims: Claims) -> None:
    await claims.create("a", "b")
    assert (await claims.allocate("a", 0)).status == 200
    async with claims.guarded(replicas=2):
        assert (await claims.allocate("b", 0)).status == 403
        await claims.stop("r0")
        assert (await claims.allocate("b", 0)).status in (403, 500), "a connection to the stopped one is refused"
        assert (await claims.allocate("b", 0)).status in (403, 500)
        assert await claims.owners(0) == ["a"]


async def test_an_allocation_that_is_never_stored_ends(claims: Claims, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server, or another webhook, gives up after the review."""
    async with claims.guarded() as url:
        await claims.create("a", "b")
        await review(claims, url, await claims.get("a"), 0)
        assert (await claims.allocate("b", 0)).status == 403
        monkeypatch.setattr(ledger, "WRITE_SECONDS", 0.0)
        assert (await claims.allocate("b", 0)).status == 200
        stored = ledger.decode_ledger((await claims.api.get(LEDGER)).body["data"]["ledger"])
        assert [entry.claim for entry in stored.in_flight.values()] == ["default/b"]


async def review(claims: Claims, url: str, claim: JSON, *devices: int) -> None:
    """The webhook allows an allocation, which is not stored."""
    request = {
        "uid": "u",
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "subResource": "status",
        "operation": "UPDATE",
        "namespace": "default",
        "name": claim["metadata"]["name"],
        "object": allocated(claim, *devices),
        "oldObject": claim,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    trusted = ssl.create_default_context(cafile=str(claims.authority.certificate))
    async with aiohttp.ClientSession() as session, session.post(url, json=body, ssl=trusted) as response:
        assert (await response.json())["response"]["allowed"] is True


async def test_without_its_ledger_nothing_is_decided(claims: Claims) -> None:
    """failurePolicy decides then: the webhook answers 503."""
    async with claims.guarded(faulty=True):
        await claims.create("a")
        with claims.rig.faults.refuse(Requests("", "/configmaps.*"), 500):
            assert (await claims.allocate("a", 0)).status == 500
        assert await claims.owners(0) == []
        assert (await claims.allocate("a", 0)).status == 200


async def test_other_updates_are_not_decided_by_the_ledger(claims: Claims) -> None:
    """Deallocations and reservations are allowed also without it."""
    await claims.create("a")
    await claims.allocate("a", 0)
    async with claims.guarded(faulty=True):
        with claims.rig.faults.refuse(Requests("", "/configmaps.*"), 500):
            reserved = await claims.get("a")
            reserved["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
            assert (await claims.api.put(f"{CLAIMS}/a/status", reserved)).status == 200
            await claims.deallocate("a")
