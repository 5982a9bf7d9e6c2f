"""The cluster of one part of the bench: nodes without pods, services not started yet."""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bench import load
from bench.costs import Cost, costs, spent
from builders.e2e.solve_relay import SolveRelay
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.stack import API_SERVER, ETCD, SERVICES, Stack
from muster.localcluster.stack_options import StackOptions


class BenchCluster:
    """A cluster, and the cost of its processes."""

    def __init__(
        self,
        options: argparse.Namespace,
        *,
        gpus: int = 0,
        clear: bool = True,
        replicas: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`gpus`: of each node, as an extended resource. `clear`: delete from a real API server what was created.
        `replicas` of services of which there is more than one; the first ones start first.
        """
        self.options, self._gpus, self._clear = options, gpus, clear
        self._external = {name: int(pid) for name, _, pid in (item.partition("=") for item in options.watch_pid)}
        self._files = tempfile.TemporaryDirectory(prefix="muster-bench-")
        self.stack = Stack(
            StackOptions(
                directory=Path(self._files.name),
                kubeconfig=options.kubeconfig,
                kubelets=False,
                device_webhook=options.device_webhook,
                log_level="warning",
                metrics=options.metrics,
                replicas=replicas,
            )
        )

    async def __aenter__(self) -> "BenchCluster":
        await self.stack.start([name for name in (ETCD, API_SERVER) if name in self.stack.children])
        self.session = await KubeSession.connect(KubeSettings(kubeconfig=self.stack.kubeconfig))
        say(f"creating {self.options.nodes} nodes")
        await load.add_nodes(self.session, self.options.nodes, gpus=self._gpus)
        self.namespace = await load.add_namespace(self.session)
        return self

    async def __aexit__(self, *_: object) -> None:
        for service in SERVICES[::-1]:
            for name in self.stack.replicas_of(service):
                await self.stack.stop_one(name)
        if self._clear and self.options.kubeconfig is not None:
            await load.clear(self.session, self.namespace)
        await self.session.close()
        await self.stack.stop()
        self._files.cleanup()

    async def start_services(self, relay: SolveRelay | None = None) -> None:
        """Start Muster, all services at once, as a kubelet does; with a relay, through which the coordinator calls
        placement, the coordinator last.
        """
        if relay is not None:
            relay.lead_through(self.stack.children["coordinator"].argv)
            await self.stack.start(SERVICES[:-1])
            await relay.start()
        await self.stack.start([name for service in SERVICES for name in self.stack.replicas_of(service)])

    # -- costs

    def count(self, name: str, pid: int) -> None:
        """Count the costs of a further process."""
        self._external[name] = pid

    def costs(self) -> dict[str, Cost]:
        """Costs of all processes so far."""
        return costs(self.stack, self._external)

    def spent(self, before: dict[str, Cost]) -> dict[str, dict[str, float]]:
        """Costs of all processes since."""
        return spent(before, self.costs())

    def percent_of_a_core(self, before: dict[str, Cost], seconds: float) -> dict[str, float]:
        """CPU of all processes since, as a share of that time."""
        shares = {name: cost["cpu_seconds"] / seconds * 100 for name, cost in self.spent(before).items()}
        return {name: round(share, 2) for name, share in shares.items()}


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)
