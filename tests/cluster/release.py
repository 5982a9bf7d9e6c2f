"""A release of the chart on the cluster."""

from dataclasses import dataclass, field
from typing import Any

from builders.deploy.helm import NAMESPACE
from cluster.real_cluster import RealCluster

JSON = dict[str, Any]


@dataclass
class Release:
    """Muster, as a user installs it: the chart with its default values."""

    cluster: RealCluster
    ready_seconds: float
    """From `helm install` to the last ready pod."""
    figures: dict[str, float] = field(default_factory=dict)
    """Measured by tests, and printed at the end."""

    async def pods(self, component: str = "") -> list[JSON]:
        """The pods that run, of one component or of all."""
        selector = "app.kubernetes.io/name=muster,app.kubernetes.io/component"
        selector += f"={component}" if component else " notin (etcd-users,test)"
        return list((await self.cluster.get("-n", NAMESPACE, "pods", "-l", selector))["items"])

    async def until_ready(self) -> None:
        """Wait until every Deployment and StatefulSet has its replicas, all of the newest revision and ready."""
        for kind in ("deployment", "statefulset"):
            found = await self.cluster.get("-n", NAMESPACE, kind)
            for each in found["items"]:
                name = f"{kind}/{each['metadata']['name']}"
                await self.cluster.kubectl("-n", NAMESPACE, "rollout", "status", name, "--timeout=280s")
