"""Replicas of lifecycle that serve the quota webhook, and users of quotas."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders.kube.client import Reply
from builders.lifecycle.replicas import LifecycleCluster
from builders.lifecycle.webhook_service import WebhookCluster
from muster.lifecycle.quota.controller import QuotaController
from muster.lifecycle.settings import QuotaSettings
from muster.localcluster.webhooks import QUOTA

JSON = dict[str, Any]
POD_GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
PODS = "/api/v1/namespaces/default/pods"
LEDGER = "/api/v1/namespaces/default/configmaps/muster-quota.default"
GROUP_NAME = "scheduling.k8s.io/group-name"


class QuotaCluster(WebhookCluster):
    """An API server with the quota webhook, and its replicas."""

    def __init__(self, rig: LifecycleCluster, directory: Path) -> None:
        super().__init__(rig, directory, QUOTA, QuotaController, QuotaSettings)

    # -- users

    async def quota(self, name: str = "team", **hard: str) -> None:
        """Creates a quota and waits until it is enforced."""
        await self.api.created(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard}})
        await self.api.until(f"{QUOTAS}/{name}", lambda reply: "used" in (reply.body.get("status") or {}))

    async def group(self, name: str, *, path: str = POD_GROUPS, members: int = 2, **total: str) -> JSON:
        field = "totalResources" if path == POD_GROUPS else "minResources"
        body = {"metadata": {"name": name}, "spec": {"minMember": members, field: total}}
        created: JSON = await self.api.created(path, body)
        return created

    async def wait_for_reason(self, name: str, reason: str, *, path: str = POD_GROUPS) -> str:
        """Waits until a group's condition has the reason; returns its message."""
        reply = await self.api.until(f"{path}/{name}", lambda reply: condition(reply).get("reason") == reason)
        return str(condition(reply)["message"])

    async def create(self, name: str, *, of: str = "", **requests: str) -> Reply:
        return await self.api.post(PODS, quota_pod(name, of=of, **requests))

    async def statuses(self, names: Sequence[str], *, of: str = "", **requests: str) -> list[int]:
        """Creates pods concurrently; returns the HTTP statuses."""
        replies = await asyncio.gather(*(self.create(name, of=of, **requests) for name in names))
        return [reply.status for reply in replies]


def quota_pod(name: str, *, of: str = "", **requests: str) -> JSON:
    """Returns a pod, of a kube-batch group if one is named."""
    metadata: JSON = {"name": name}
    if of:
        metadata["annotations"] = {GROUP_NAME: of}
    container = {"name": "main", "image": "x", "resources": {"requests": requests}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def condition(reply: Reply) -> JSON:
    """Returns the condition QuotaReserved of a PodGroup."""
    conditions = (reply.body.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "QuotaReserved"), {})
