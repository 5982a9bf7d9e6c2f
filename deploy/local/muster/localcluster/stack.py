"""All processes of a local cluster: etcd, API server, kubelets and the services of Muster.

`muster up`, the end-to-end tests and the benchmarks start it. With a kubeconfig it uses that API server instead of the
embedded one.
"""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from muster.cli.endpoints import Endpoints, remove_endpoints
from muster.config.settings import PLAIN_TEXT, KubeSettings, TlsSettings
from muster.kube.session import KubeSession
from muster.localcluster.certificates import can_issue_certificates
from muster.localcluster.child_process import Child
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.identities import KUBELETS, Identities
from muster.localcluster.manifests import apply_manifests
from muster.localcluster.permissions import NAMESPACE, find_permissions, grants, read_permissions
from muster.localcluster.ports import free_port
from muster.localcluster.probes import Probe, always, grpc_serving, http_ready, wait_until_ready
from muster.localcluster.security import CLIENT, Security
from muster.localcluster.stack_options import StackOptions
from muster.localcluster.webhooks import DEVICES, QUOTA, LocalWebhook

ETCD, API_SERVER = "etcd", "api-server"
_LIFECYCLE = "lifecycle"
PLACEMENT = "placement"
CONSOLE, FORECAST = "console", "forecast"
"""Only with their options."""
SERVICES = ("cluster-state", PLACEMENT, "binding", _LIFECYCLE, "coordinator")
"""In start order; they stop in reverse order. Those with options start last."""

_GRACE_SECONDS = 10.0
_TOPOLOGY_LEVELS = "rack=rack"  # the label that simulated nodes have
_SPAN_EXPORT_MILLISECONDS = 200  # not OpenTelemetry's 5 s: users ask for a trace right after the gang started


class Stack:
    """Processes by name, with operations to start, probe, kill and stop them."""

    def __init__(self, options: StackOptions) -> None:
        self.options = options
        self.services = _services(options)
        self.directory = options.directory.absolute()
        self.children: dict[str, Child] = {}
        self.addresses = {
            name: f"127.0.0.1:{free_port()}" for service in self.services for name in self.replicas_of(service)
        }
        """Process name -> gRPC address, for all replicas of all services; of the console that of HTTP."""
        if options.cluster_state_listen:
            self.addresses["cluster-state"] = options.cluster_state_listen
        self.metrics_addresses = {name: f"127.0.0.1:{free_port()}" for name in self.addresses if options.metrics}
        """Process name -> address that serves /metrics."""
        self.etcd_addresses = {name: f"127.0.0.1:{free_port()}" for name in _process_names(ETCD, options.etcd_members)}
        self.etcd_address = ",".join(self.etcd_addresses.values())
        """Addresses of all members, comma-separated."""
        self.kubeconfig = (options.kubeconfig or self.directory / "kubeconfig").absolute()
        """Kubeconfig of the administrator."""
        self.identities = Identities(self.directory / "access")
        """Credentials of services and kubelets for the embedded API server; a real one does not know them."""
        self.is_embedded = options.kubeconfig is None
        self._has_kubeconfigs = False
        self._api_address = f"127.0.0.1:{free_port()}"
        self._probes: dict[str, Probe] = {}
        self.security = Security(self.directory / "tls") if options.secured else None
        """None: plain text."""
        self.webhooks = self._planned_webhooks()
        """Webhooks that lifecycle serves; without openssl there are none."""
        self._plan()

    def tls(self, owner: str = CLIENT) -> TlsSettings:
        """TLS files of a service or of an outside client."""
        return self.security.tls(owner) if self.security is not None else PLAIN_TEXT

    def replicas_of(self, service: str) -> list[str]:
        """Process names of a service: "binding", "binding-2", ..."""
        return _process_names(service, self.options.replicas.get(service, 1))

    async def start(self, names: Iterable[str] | None = None, *, timeout_seconds: float = 60) -> None:
        """Start the named processes, or all, unless they run, and wait until they are ready.

        Raises ChildDied if one ends meanwhile, TimeoutError if one is not ready in time, NoCertificate and
        UnreadablePermissions.
        """
        chosen = self.children if names is None else names
        names_to_start = [name for name in chosen if not self.children[name].running]
        base = [name for name in names_to_start if name == API_SERVER or name in self.etcd_addresses]
        async with asyncio.timeout(timeout_seconds):
            if not self._has_kubeconfigs:
                self._write_kubeconfigs()
            if self.security is not None:
                await self.security.create()
            await self._start_and_wait(base)
            if self.security is not None and any(name in self.etcd_addresses for name in base):
                await self.security.enable_etcd_authentication(self.etcd_address)
            if API_SERVER in base:
                await self._grant_permissions()
            for webhook in self.webhooks:
                await webhook.create_certificate()
            await self._start_and_wait([name for name in names_to_start if name not in base])
            for webhook in self.webhooks if _LIFECYCLE in names_to_start else ():
                await webhook.register(self.kubeconfig, conditions=not self.is_embedded)

    async def stop(self) -> None:
        """Stop all processes, services first; kill those that exceed the grace period."""
        try:
            if self.options.kubeconfig is not None:
                await self.unregister_webhooks()
        finally:
            await self._stop_all()

    async def unregister_webhooks(self) -> None:
        """Have the API server call none, until lifecycle is started again."""
        for webhook in self.webhooks:
            await webhook.unregister(self.kubeconfig)

    async def _stop_all(self) -> None:
        services = [name for service in self.services[::-1] for name in self.replicas_of(service)]
        for group in (services, (KUBELETS, API_SERVER, *self.etcd_addresses)):
            children = [self.children[name] for name in group if name in self.children]
            for child in children:  # one after another, so that no client logs that its server is gone
                await child.stop(_GRACE_SECONDS)
        remove_endpoints(self.directory)

    async def _start_and_wait(self, names: list[str]) -> None:
        await asyncio.gather(*(self.children[name].start() for name in names))
        await self.ready(names)

    async def ready(self, names: Iterable[str] | None = None) -> None:
        """Wait until the named processes, or all, are ready; has no deadline of its own. Raises ChildDied."""
        chosen = self.children if names is None else names
        await asyncio.gather(*(wait_until_ready(self.children[name], self._probes[name]) for name in chosen))

    async def serving(self, name: str) -> bool:
        """Whether the process runs and its readiness probe succeeds."""
        return self.children[name].running and await self._probes[name]()

    async def kill(self, name: str) -> None:
        """Send SIGKILL and wait."""
        await self.children[name].kill()

    async def stop_one(self, name: str) -> None:
        """Send SIGTERM and wait."""
        await self.children[name].stop(_GRACE_SECONDS)

    def endpoints(self, traces: Path | None = None) -> Endpoints:
        """Addresses for other commands."""
        return Endpoints(
            pid=os.getpid(),
            kubeconfig=str(self.kubeconfig),
            etcd=self.etcd_address,
            cluster_state=self.addresses["cluster-state"],
            placement=self.options.own_placement or self.addresses[PLACEMENT],
            binding=self.addresses["binding"],
            lifecycle=self.addresses["lifecycle"],
            coordinator=self.addresses["coordinator"],
            console=self.console_url,
            forecast=self.addresses.get(FORECAST, ""),
            traces=str(traces or ""),
            metrics=self.metrics_addresses,
        )

    @property
    def console_url(self) -> str:
        """URL of the console; empty: there is none."""
        if CONSOLE not in self.addresses:
            return ""
        return f"{'http' if self.security is None else 'https'}://{self.addresses[CONSOLE]}/"

    def _plan(self) -> None:
        self._plan_etcd()
        if self.is_embedded:
            self._plan_api_server()
        if self.options.kubelets:
            self._plan_kubelets()
        of_service = {
            "cluster-state": self._kubeconfig_flags("cluster-state"),
            PLACEMENT: ["--cluster-state", self._target("cluster-state")],
            "binding": [*self._kubeconfig_flags("binding"), "--coordinator", self._target("coordinator")],
            _LIFECYCLE: [*self._kubeconfig_flags(_LIFECYCLE), *(flag for each in self.webhooks for flag in each.flags)],
            "coordinator": [
                *("--cluster-state", self._target("cluster-state")),
                *("--placement", self._placement_addresses()),
                *("--binding", self._target("binding")),
                *("--etcd", self.etcd_address),
                *("--advertise-host", "127.0.0.1"),
            ],
            FORECAST: [
                *("--cluster-state", self._target("cluster-state")),
                *("--coordinator", ",".join(self.addresses[each] for each in self.replicas_of("coordinator"))),
            ],
            CONSOLE: [
                *self._kubeconfig_flags(CONSOLE),
                *("--cluster-state", self._target("cluster-state")),
                *("--coordinator", self._target("coordinator")),
                *(("--forecast", self._target(FORECAST)) if self.options.forecast else ()),
            ],
        }
        for service in self.services:
            flags = of_service[service]
            for name in self.replicas_of(service):
                self._plan_service(service, name, flags)

    def _placement_addresses(self) -> str:
        if self.options.own_placement:
            return self.options.own_placement
        return ",".join(self.addresses[each] for each in self.replicas_of(PLACEMENT))

    def _target(self, service: str) -> str:
        """GRPC target of all replicas; clients balance over the ready ones."""
        addresses = [self.addresses[name] for name in self.replicas_of(service)]
        return addresses[0] if len(addresses) == 1 else f"ipv4:{','.join(addresses)}"

    def _planned_webhooks(self) -> list[LocalWebhook]:
        if not can_issue_certificates():
            return []
        wanted = [kind for kind, on in ((QUOTA, self.options.quota), (DEVICES, self.options.device_webhook)) if on]
        return [
            LocalWebhook(kind, self.directory / "webhooks" / kind.name, f"127.0.0.1:{free_port()}") for kind in wanted
        ]

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
        for each in options.devices:
            argv += ["--devices", each]
        self._add(KUBELETS, [*argv, *options.kubelet_arguments], always)

    def _plan_service(self, service: str, name: str, flags: list[str]) -> None:
        options = self.options
        address = self.addresses[name]
        program = options.placement if service == PLACEMENT else service
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
        probe = http_ready(address, "/ready") if service == CONSOLE else grpc_serving(address)
        if self.security is not None:
            environment |= self.security.environment(service, program)
            health_address = f"127.0.0.1:{free_port()}"
            argv += ["--health-listen", health_address]
            probe = grpc_serving(health_address)
        self._add(name, argv, probe, environment)

    def _kubeconfig_flags(self, name: str) -> list[str]:
        return ["--kubeconfig", str(self._kubeconfig_of(name))]

    def _kubeconfig_of(self, name: str) -> Path:
        has_identity = self.is_embedded if name == KUBELETS else self._has_identities
        return self.identities.kubeconfig(name) if has_identity else self.kubeconfig

    @property
    def _has_identities(self) -> bool:
        """Whether services authenticate by tokens of this stack."""
        return self.is_embedded or bool(self.options.services_server)

    def _write_kubeconfigs(self) -> None:
        server = f"http://{self._api_address}"
        self.identities.write(server=server, services_server=self.options.services_server or server)
        self._has_kubeconfigs = True

    async def _grant_permissions(self) -> None:
        """Create the services' RBAC objects in the embedded API server, which starts empty."""
        session = await KubeSession.connect(KubeSettings(kubeconfig=self.kubeconfig))
        try:
            await apply_manifests(session, grants(read_permissions(find_permissions())))
        finally:
            await session.close()

    def _add(self, name: str, argv: list[str], probe: Probe, environment: Mapping[str, str] | None = None) -> None:
        log = self.directory / "logs" / f"{name}.log"
        self.children[name] = Child(name, argv, log, environment=environment)
        self._probes[name] = probe


def _services(options: StackOptions) -> tuple[str, ...]:
    services = [name for name in SERVICES if name != PLACEMENT or not options.own_placement]
    wanted = ((FORECAST, options.forecast), (CONSOLE, options.console))
    return (*services, *(name for name, on in wanted if on))


def _process_names(name: str, count: int) -> list[str]:
    return [name, *(f"{name}-{number}" for number in range(2, count + 1))]


def _otlp_environment(endpoint: str) -> dict[str, str]:
    """OTLP variables for `endpoint`; those of the shell are for the receiver's forwarder and are cleared."""
    cleared = {name: "" for name in os.environ if name.startswith("OTEL_EXPORTER_OTLP_")}
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_BSP_SCHEDULE_DELAY": str(_SPAN_EXPORT_MILLISECONDS),
    }
    return cleared | variables


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]
