"""A release of the chart on the cluster."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

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

    async def muster(self, *arguments: str) -> str:
        """Run kubectl-muster through a port forward, with the client certificate of the chart; returns its output.
        Raises CommandFailed.
        """
        with TemporaryDirectory() as directory:
            environment = {}
            for file, variable in (("tls.crt", "CERTIFICATE_FILE"), ("tls.key", "KEY_FILE"), ("ca.crt", "CA_FILE")):
                template = f'go-template={{{{index .data "{file}" | base64decode}}}}'
                secret = ("get", "secret", "muster-client-tls", "-o", template)
                path = Path(directory) / file
                path.write_text(await self.cluster.kubectl("-n", NAMESPACE, *secret))
                environment[f"MUSTER_CLI_TLS__{variable}"] = str(path)
            return await self.cluster.run("kubectl-muster", *arguments, environment=environment)

    async def phases(self) -> dict[str, str]:
        """Phases of gangs in the namespace default, by name."""
        listed = msgspec.json.decode(await self.muster("gangs", "--namespace", "default", "--output", "json"))
        return {each["name"]: each["phase"] for each in listed["gangs"]}

    async def until_ready(self) -> None:
        """Wait until every Deployment and StatefulSet has its replicas, all of the newest revision and ready."""
        for kind in ("deployment", "statefulset"):
            found = await self.cluster.get("-n", NAMESPACE, kind)
            for each in found["items"]:
                name = f"{kind}/{each['metadata']['name']}"
                await self.cluster.kubectl("-n", NAMESPACE, "rollout", "status", name, "--timeout=280s")
