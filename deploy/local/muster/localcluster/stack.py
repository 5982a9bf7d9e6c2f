"""A whole Muster on this machine: etcd, API server, kubelets and the services, each its own process.

`muster up`, the end-to-end tests and the bench start it. With a kubeconfig it uses that API server instead of the
embedded one.
"""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.cli.endpoints import Endpoints, remove_endpoints
from muster.config.settings import PLAIN_TEXT, KubeSettings, TlsSettings
from muster.kube.session import KubeSession
from muster.localcluster.certificates import can_make_certificates
from muster.localcluster.child_process import Child
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.identities import KUBELETS, Identities
from muster.localcluster.manifests import apply_manifests
from muster.localcluster.ports import free_port
from muster.localcluster.probes import Probe, always, grpc_serving, http_ready, wait_until_ready
from muster.localcluster.quota_webhook import QuotaWebhook
from muster.localcluster.rights import NAMESPACE, find_rights, grants, read_rights
from muster.localcluster.security import CLIENT, Security

ETCD, API_SERVER = "etcd", "api-server"
_LIFECYCLE = "lifecycle"
SERVICES = ("cluster-state", "placement", "binding", _LIFECYCLE, "coordinator")
"""In the order in which they start; they stop in the reverse one."""

_GRACE_SECONDS = 10.0
_TOPOLOGY_LEVELS = "rack=rack"  # the label that simulated nodes have
_SPANS_LEAVE_AFTER_MILLISECONDS = 200  # not OpenTelemetry's 5 s: who asks for a trace has just seen its gang start


@dataclass(frozen=True)
class StackOptions:
    """What to start, and where it keeps its files."""

    directory: Path
    nodes: int = 20
    racks: int = 4
    cpu: str = "8"
    memory: str = "32Gi"
    pods_per_node: int = 110
    gpus_per_node: int = 0
    kubeconfig: Path | None = None
    """API server to use; None: the embedded one."""
    services_server: str = ""
    """URL by which services reach it, if not by its own: tests put faults in between, which know services by the tokens
    of `Stack.identities`."""
    kubelets: bool = True
    """Simulated kubelets create nodes and run what is bound to them."""
    otlp_endpoint: str = ""
    """Where spans go, as a URL; empty: nowhere."""
    log_level: str = "info"
    durable: bool = True
    """etcd writes to disk before it answers; only tests do without."""
    placement: str = "placement"
    """What serves as placement, by its name in `muster run`."""
    service_environment: Mapping[str, str] = field(default_factory=dict)
    """Further environment of the services, e.g. shorter timeouts for tests."""
    kubelet_arguments: tuple[str, ...] = ()
    replicas: Mapping[str, int] = field(default_factory=dict)
    """How many of a service run, by its name; one of those that are not named."""
    etcd_members: int = 1
    metrics: bool = True
    """Services tell metrics."""
    secured: bool = False
    """Mutual TLS between all, also to and between etcd's members, and users in etcd. Needs openssl."""
    quota: bool = False
    """The API server, which must be on this machine, asks lifecycle about new pods, which guards quota that is reserved
    for PodGroups."""


class Stack:
    """The processes by name, with what it takes to start, watch, break and end them."""

    def __init__(self, options: StackOptions) -> None:
        self.options = options
        self.directory = options.directory.absolute()
        self.children: dict[str, Child] = {}
        self.addresses = {
            name: f"127.0.0.1:{free_port()}" for service in SERVICES for name in self.replicas_of(service)
        }
        """Where every process of a service serves."""
        self.metrics_addresses = {name: f"127.0.0.1:{free_port()}" for name in self.addresses if options.metrics}
        """Where they tell their metrics by HTTP."""
        self.etcd_addresses = {name: f"127.0.0.1:{free_port()}" for name in _numbered(ETCD, options.etcd_members)}
        self.etcd_address = ",".join(self.etcd_addresses.values())
        """Of all members."""
        self.kubeconfig = (options.kubeconfig or self.directory / "kubeconfig").absolute()
        """For whoever started it."""
        self.identities = Identities(self.directory / "access")
        """By which the embedded API server knows services and kubelets; a real one does not know these."""
        self.is_embedded = options.kubeconfig is None
        self._has_kubeconfigs = False
        self._api_address = f"127.0.0.1:{free_port()}"
        self._probes: dict[str, Probe] = {}
        self.security = Security(self.directory / "tls") if options.secured else None
        """None: all speak plain text."""
        self.quota_webhook = self._planned_webhook()
        """None: no quota is reserved."""
        self._plan()

    def tls(self, who: str = CLIENT) -> TlsSettings:
        """What a service shows, or somebody who asks from outside."""
        return self.security.tls(who) if self.security is not None else PLAIN_TEXT

    def replicas_of(self, service: str) -> list[str]:
        """The names of its processes: "binding", "binding-2", ..."""
        return _numbered(service, self.options.replicas.get(service, 1))

    # -- all of them

    async def start(self, names: Iterable[str] | None = None, *, timeout_seconds: float = 60) -> None:
        """Start processes (all that are not running, if none are named) and wait until they serve.

        Raises ChildDied if one ends meanwhile, TimeoutError if one is not ready in time, NoCertificate, NoRights.
        """
        chosen = self.children if names is None else names
        wanted = [name for name in chosen if not self.children[name].running]
        base = [name for name in wanted if name == API_SERVER or name in self.etcd_addresses]
        async with asyncio.timeout(timeout_seconds):
            if not self._has_kubeconfigs:
                self._write_kubeconfigs()
            if self.security is not None:
                await self.security.make()
            await self._start_and_wait(base)
            if self.security is not None and any(name in self.etcd_addresses for name in base):
                await self.security.protect(self.etcd_address)
            if API_SERVER in base:
                await self._grant_rights()
            if self.quota_webhook is not None:
                await self.quota_webhook.make_certificate()
            await self._start_and_wait([name for name in wanted if name not in base])
            if self.quota_webhook is not None and _LIFECYCLE in wanted:
                await self.quota_webhook.register(self.kubeconfig)

    async def stop(self) -> None:
        """End all of them, services first, each with time to drain. What is slow is killed."""
        try:
            if self.quota_webhook is not None and self.options.kubeconfig is not None:
                await self.quota_webhook.unregister(self.kubeconfig)
        finally:
            await self._stop_all()

    async def _stop_all(self) -> None:
        services = [name for service in SERVICES[::-1] for name in self.replicas_of(service)]
        for group in (services, (KUBELETS, API_SERVER, *self.etcd_addresses)):
            children = [self.children[name] for name in group if name in self.children]
            for child in children:  # one after the other, so that nobody logs that its server is gone
                await child.stop(_GRACE_SECONDS)
        remove_endpoints(self.directory)

    async def _start_and_wait(self, names: list[str]) -> None:
        await asyncio.gather(*(self.children[name].start() for name in names))
        await self.ready(names)

    async def ready(self, names: Iterable[str] | None = None) -> None:
        """Wait until processes (all, if none are named) serve; set your own deadline around it. Raises ChildDied."""
        chosen = self.children if names is None else names
        await asyncio.gather(*(wait_until_ready(self.children[name], self._probes[name]) for name in chosen))

    async def serving(self, name: str) -> bool:
        """The process runs and answers now."""
        return self.children[name].running and await self._probes[name]()

    # -- one of them

    async def kill(self, name: str) -> None:
        """Kill -9."""
        await self.children[name].kill()

    async def stop_one(self, name: str) -> None:
        """SIGTERM and wait."""
        await self.children[name].stop(_GRACE_SECONDS)

    def endpoints(self, traces: Path | None = None) -> Endpoints:
        """What other commands need to know."""
        return Endpoints(
            pid=os.getpid(),
            kubeconfig=str(self.kubeconfig),
            etcd=self.etcd_address,
            cluster_state=self.addresses["cluster-state"],
            placement=self.addresses["placement"],
            binding=self.addresses["binding"],
            lifecycle=self.addresses["lifecycle"],
            coordinator=self.addresses["coordinator"],
            traces=str(traces or ""),
            metrics=self.metrics_addresses,
        )

    # -- what is run, and how one sees that it serves

    def _plan(self) -> None:
        self._plan_etcd()
        if self.is_embedded:
            self._plan_api_server()
        if self.options.kubelets:
            self._plan_kubelets()
        of_service = {
            "cluster-state": self._kubeconfig_flags("cluster-state"),
            "placement": ["--cluster-state", self._target("cluster-state")],
            "binding": self._kubeconfig_flags("binding"),
            _LIFECYCLE: self._kubeconfig_flags(_LIFECYCLE) + (self.quota_webhook.flags if self.quota_webhook else []),
            "coordinator": [
                *("--cluster-state", self._target("cluster-state")),
                *("--placement", ",".join(self.addresses[each] for each in self.replicas_of("placement"))),
                *("--binding", self._target("binding")),
                *("--etcd", self.etcd_address),
            ],
        }
        for service, flags in of_service.items():
            for name in self.replicas_of(service):
                self._plan_service(service, name, flags)

    def _target(self, service: str) -> str:
        """What its clients are told: all replicas, of which they use those that are ready in turn."""
        addresses = [self.addresses[name] for name in self.replicas_of(service)]
        return addresses[0] if len(addresses) == 1 else f"ipv4:{','.join(addresses)}"

    def _planned_webhook(self) -> QuotaWebhook | None:
        if not self.options.quota or not can_make_certificates():
            return None
        return QuotaWebhook(self.directory / "webhook", f"127.0.0.1:{free_port()}")

    def _plan_etcd(self) -> None:
        peers = {name: f"127.0.0.1:{free_port()}" for name in self.etcd_addresses}
        for name, address in self.etcd_addresses.items():
            etcd = EtcdProcess(
                self.directory / name,
                address=address,
                durable=self.options.durable,
                name=name,
                peers=peers,
                tls=self.tls(ETCD),
            )
            self._add(name, etcd.argv, etcd.healthy)

    def _plan_api_server(self) -> None:
        address = self._api_address
        argv = _module("muster.localcluster.apiserver", "--listen", address, "--kubeconfig-out", str(self.kubeconfig))
        argv += ["--token-auth-file", str(self.identities.token_file)]
        self._add(API_SERVER, argv, http_ready(address, "/readyz"))

    def _plan_kubelets(self) -> None:
        options = self.options
        argv = _module("muster.localcluster.kubelets", *self._kubeconfig_flags(KUBELETS))
        argv += ["--nodes", str(options.nodes), "--racks", str(options.racks), "--pods", str(options.pods_per_node)]
        argv += ["--cpu", options.cpu, "--memory", options.memory]
        if options.gpus_per_node:
            argv += ["--gpu", str(options.gpus_per_node)]
        self._add(KUBELETS, [*argv, *options.kubelet_arguments], always)

    def _plan_service(self, service: str, name: str, flags: list[str]) -> None:
        options = self.options
        address = self.addresses[name]
        program = options.placement if service == "placement" else service
        argv = _module("muster.cli", "run", program, "--listen", address, "--log-level", options.log_level, *flags)
        if name in self.metrics_addresses:
            argv += ["--metrics-listen", self.metrics_addresses[name]]
        environment = dict(options.service_environment)
        if options.kubelets:
            environment.setdefault("MUSTER_CLUSTER_STATE_TOPOLOGY_LEVELS", _TOPOLOGY_LEVELS)
        if self._has_identities:
            environment["MUSTER_LIFECYCLE_LEASE_NAMESPACE"] = NAMESPACE
        if options.otlp_endpoint:
            environment = _otlp_environment(options.otlp_endpoint) | environment
        asked_at = address
        if self.security is not None:
            environment |= self.security.environment(service, program)
            asked_at = f"127.0.0.1:{free_port()}"
            argv += ["--health-listen", asked_at]
        self._add(name, argv, grpc_serving(asked_at), environment)

    def _kubeconfig_flags(self, name: str) -> list[str]:
        return ["--kubeconfig", str(self._kubeconfig_of(name))]

    def _kubeconfig_of(self, name: str) -> Path:
        shown = self.is_embedded if name == KUBELETS else self._has_identities
        return self.identities.kubeconfig(name) if shown else self.kubeconfig

    # -- who the processes are to the API server

    @property
    def _has_identities(self) -> bool:
        """Services come by tokens of this stack, and in the namespace where Muster is at home."""
        return self.is_embedded or bool(self.options.services_server)

    def _write_kubeconfigs(self) -> None:
        server = f"http://{self._api_address}"
        self.identities.write(server=server, services_server=self.options.services_server or server)
        self._has_kubeconfigs = True

    async def _grant_rights(self) -> None:
        """The embedded API server begins with nothing."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=self.kubeconfig))
        try:
            await apply_manifests(session, grants(read_rights(find_rights())))
        finally:
            await session.close()

    def _add(self, name: str, argv: list[str], probe: Probe, environment: Mapping[str, str] | None = None) -> None:
        log = self.directory / "logs" / f"{name}.log"
        self.children[name] = Child(name, argv, log, environment=environment)
        self._probes[name] = probe


def _numbered(name: str, count: int) -> list[str]:
    return [name, *(f"{name}-{number}" for number in range(2, count + 1))]


def _otlp_environment(endpoint: str) -> dict[str, str]:
    """Spans go there, whatever the shell says of where and how they go: that is for the collector's own way on."""
    shells = {name: "" for name in os.environ if name.startswith("OTEL_EXPORTER_OTLP_")}
    ours = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_BSP_SCHEDULE_DELAY": str(_SPANS_LEAVE_AFTER_MILLISECONDS),
    }
    return shells | ours


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]
