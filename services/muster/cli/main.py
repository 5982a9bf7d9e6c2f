"""The program `muster`: its commands and their options. A command's code is imported when it runs, for a fast start."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.errors import CliError, exit_on_error
from muster.cli.options import ClusterState, Coordinator, Forecast, Insecure, Output, Redact, StateDirectory, TextOutput
from muster.cli.plugins import PluginGroup
from muster.cli.service_commands import ServiceGroup
from muster.cli.whatif_options import (
    PlayLimit,
    StartsLimit,
    WhatIfAddNodes,
    WhatIfCount,
    WhatIfFile,
    WhatIfLike,
    WhatIfLimit,
    WhatIfPriorityClass,
    WhatIfTopology,
    WhatIfWithout,
    WhatIfWithoutNode,
)

if TYPE_CHECKING:
    from muster.cli.endpoints import Addresses

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # the command reports errors itself
# gRPC's fork handlers crash one in twenty child processes with SIGSEGV before exec, if they are started on uvloop with
# calls in flight. No code here runs Python after a fork, so the handlers are not needed. Must be set before gRPC loads.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# pydantic would read the entry points of all packages for plugins of its own.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

app = typer.Typer(
    name="muster",
    cls=PluginGroup,
    help="A Kubernetes scheduler for gangs: groups of pods that are only useful if they all start together.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(
    typer.Typer(
        name="run",
        cls=ServiceGroup,
        help="Run one service until SIGTERM, for the cluster of the kubeconfig or the one that it runs in.",
        no_args_is_help=True,
    )
)

conformance_app = typer.Typer(
    name="conformance", help="Test implementations of Muster's contracts.", no_args_is_help=True
)
app.add_typer(conformance_app)


@app.command()
def gangs(
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only this namespace.", show_default=False)] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing changes.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
    coordinator: Coordinator = "",
    state_dir: StateDirectory = None,
) -> None:
    """List gangs: phase and reason of each."""
    from muster.cli.coordinator import find_coordinator
    from muster.cli.gangs import list_gangs, watch_gangs

    show = watch_gangs if watch else list_gangs
    show(find_coordinator(coordinator, state_dir), namespace, as_json=output is Output.JSON)


@app.command()
def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
    coordinator: Coordinator = "",
    cluster_state: ClusterState = "",
    state_dir: StateDirectory = None,
) -> None:
    """Show health, queue, starts and utilisation as they change; q ends it."""
    from muster.cli.cluster_state import find_cluster_state
    from muster.cli.coordinator import find_coordinator
    from muster.cli.top import top

    addresses = find_coordinator(coordinator, state_dir), find_cluster_state(cluster_state, state_dir)
    top(*addresses, once=once, as_json=output is TextOutput.JSON)


@app.command()
def explain(
    gang: Annotated[str, typer.Argument(metavar="GANG", help="Name, namespace/name, or dialect/namespace/name.")],
    *,
    limit: PlayLimit = 10,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
    forecast: Forecast = "",
    coordinator: Coordinator = "",
    cluster_state: ClusterState = "",
    state_dir: StateDirectory = None,
) -> None:
    """Explain one gang: its phase, what it lacks, the gangs ahead of it, and changes with which it would start now.

    Each of these changes is played on a copy of the cluster before it is listed.
    """
    from contextlib import nullcontext

    from muster.cli.cluster_state import find_cluster_state
    from muster.cli.coordinator import find_coordinator
    from muster.cli.discovery import local_kubectl
    from muster.cli.explain import explain
    from muster.cli.played_changes import Play

    address = find_coordinator(coordinator, state_dir)
    kubectl = None if coordinator else local_kubectl(state_dir)
    play = Play(limit, forecast, lambda: nullcontext(find_cluster_state(cluster_state, state_dir)))
    explain(address, gang, as_json=output is TextOutput.JSON, play=play, kubectl=kubectl)


@app.command()
def trace(
    gang: Annotated[
        str, typer.Argument(metavar="GANG", help="Name, namespace/name, dialect/namespace/name, or a trace id.")
    ],
    *,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
    everything: Annotated[bool, typer.Option("--all", help="Every span, without summaries.")] = False,
    file: Annotated[
        Path | None, typer.Option(help="Trace file; default: that of the local cluster.", show_default=False)
    ] = None,
    coordinator: Coordinator = "",
    state_dir: StateDirectory = None,
) -> None:
    """Show a gang's trace as a tree of spans with their services and durations."""
    from muster.cli.coordinator import find_coordinator_if_any
    from muster.cli.trace import find_trace_file, trace

    trace(
        find_trace_file(file, state_dir),
        find_coordinator_if_any(coordinator, state_dir),
        gang,
        as_json=output is TextOutput.JSON,
        everything=everything,
    )


@conformance_app.command("placement")
def test_placement(
    *,
    target: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the implementation's PlacementService.")
    ] = "127.0.0.1:7003",
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address on which to serve cluster-state to the implementation."),
    ] = "127.0.0.1:7001",
    insecure: Insecure = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only cases with this id prefix, e.g. S or T05; may be repeated."),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help="Groups that must pass for exit code 0, or all.", show_default="safety"),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Time limit for the implementation to become ready, in seconds.")
    ] = 60,
    timeout: Annotated[float, typer.Option(min=0.1, help="Time limit for an answer, in seconds.")] = 10,
    failures: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY",
            help="Where to write unsafe answers and failed random cases, for `muster conformance replay`.",
        ),
    ] = Path("conformance-failures"),
    list_cases: Annotated[bool, typer.Option("--list", help="List the cases without running them.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Run the documented cases against an implementation of placement in any language.

    Start the implementation with the address of --listen as its cluster-state; it needs nothing else.
    """
    from muster.cli.conformance import ConformanceRun, print_cases, run_suite
    from muster.cli.listening import listen_address

    if list_cases:
        print_cases(only or [], as_json=output is Output.JSON)
    else:
        address = listen_address(listen, insecure=insecure)
        request = ConformanceRun(target, address, only or [], require or [], wait, timeout, failures)
        run_suite(request, output is Output.JSON)


@conformance_app.command("replay")
def replay_conformance(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `muster conformance placement` wrote.")],
    *,
    target: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the implementation's PlacementService.")
    ] = "127.0.0.1:7003",
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address on which to serve cluster-state to the implementation."),
    ] = "127.0.0.1:7001",
    insecure: Insecure = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Time limit for the implementation to become ready, in seconds.")
    ] = 60,
    timeout: Annotated[float, typer.Option(min=0.1, help="Time limit for an answer, in seconds.")] = 10,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
) -> None:
    """Repeat a failed call: print its cluster, its request and the answers; exit with 1 if it fails again."""
    from muster.cli.conformance import replay_call
    from muster.cli.listening import listen_address
    from muster.conformance.suite import Options

    address = listen_address(listen, insecure=insecure)
    options = Options(target, address, wait_seconds=wait, call_seconds=timeout)
    replay_call(file, options, as_json=output is TextOutput.JSON)


@app.command()
def topology(
    tree: Annotated[str, typer.Argument(metavar="[TREE]", help="Only this tree.", show_default=False)] = "",
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show every node, too.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
    cluster_state: ClusterState = "",
    state_dir: StateDirectory = None,
) -> None:
    """Show the topology trees: domains, nodes, free capacity, and problems."""
    from muster.cli.cluster_state import find_cluster_state
    from muster.cli.topology import show_topology

    address = find_cluster_state(cluster_state, state_dir)
    show_topology(address, tree, with_nodes=nodes, as_json=output is Output.JSON)


@app.command()
def check(
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the pods.")] = "default",
    scheduler_name: Annotated[str, typer.Option(help="schedulerName of the pods.")] = "muster",
    image: Annotated[str, typer.Option(help="Image of the pods; it must not exit.")] = "registry.k8s.io/pause:3.10",
    timeout: Annotated[float, typer.Option(min=1, help="Time limit in seconds.")] = 120,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Default: $KUBECONFIG, the default file, or the pod's ServiceAccount.", show_default=False),
    ] = None,
) -> None:
    """Start a gang of two pods, wait until both run, and delete them; exit with 1 and their status if they do not."""
    from muster.cli.check import CheckOptions, check
    from muster.config.settings import KubeSettings

    check(CheckOptions(KubeSettings(kubeconfig=kubeconfig), namespace, scheduler_name, image, timeout))


@app.command()
def whatif(
    *,
    file: WhatIfFile,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of objects that name none.")] = "default",
    count: WhatIfCount = None,
    topology: WhatIfTopology = "",
    priority_class: WhatIfPriorityClass = "",
    without: WhatIfWithout = None,
    without_node: WhatIfWithoutNode = None,
    add_nodes: WhatIfAddNodes = 0,
    like: WhatIfLike = "",
    snapshot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file of `muster snapshot` instead of a cluster.", show_default=False),
    ] = None,
    limit: WhatIfLimit = 30,
    forecast: Forecast = "",
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
    coordinator: Coordinator = "",
    cluster_state: ClusterState = "",
    state_dir: StateDirectory = None,
) -> None:
    """Say what would happen if manifests were applied now: nothing is applied.

    Exit code 0: all gangs start now; 3: later; 4: never, as long as nothing changes but the ends of pods that are
    expected; 5: not found in time.
    """
    from muster.cli.discovery import local_kubectl
    from muster.cli.whatif import load_snapshot, take_snapshot, whatif, whatif_by_service
    from muster.cli.whatif_question import WhatIfRequest

    request = WhatIfRequest(
        files=file,
        namespace=namespace,
        count=count,
        topology=topology,
        priority_class=priority_class,
        without_gangs=without or [],
        without_nodes=without_node or [],
        add_nodes=add_nodes,
        like=like,
        limit_seconds=limit,
    )
    if snapshot is not None:
        whatif(request, load_snapshot(snapshot), None, as_json=output is TextOutput.JSON)
    kubectl = None if coordinator else local_kubectl(state_dir)
    if forecast:
        whatif_by_service(request, forecast, kubectl, as_json=output is TextOutput.JSON)
    addresses = _scheduler(coordinator, cluster_state, state_dir)
    whatif(request, take_snapshot(addresses), kubectl, as_json=output is TextOutput.JSON)


@app.command()
def queue(
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only this namespace.", show_default=False)] = "",
    start: Annotated[bool, typer.Option("--start", help="Also when each is expected to start.")] = False,
    limit: StartsLimit = 60,
    forecast: Forecast = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
    coordinator: Coordinator = "",
    cluster_state: ClusterState = "",
    state_dir: StateDirectory = None,
) -> None:
    """List the gangs that wait, in queue order."""
    from muster.cli.coordinator import find_coordinator
    from muster.cli.queue import show_queue, starts_by_itself, starts_by_service

    starts = None
    if start and forecast:
        starts = starts_by_service(forecast, namespace, limit)
    elif start:
        starts = starts_by_itself(_scheduler(coordinator, cluster_state, state_dir), limit)
    show_queue(find_coordinator(coordinator, state_dir), namespace, starts, as_json=output is Output.JSON)


@app.command()
def snapshot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    *,
    redact: Redact = False,
    coordinator: Coordinator = "",
    cluster_state: ClusterState = "",
    state_dir: StateDirectory = None,
) -> None:
    """Save what the scheduler knows, for the option --snapshot of `muster whatif` and `muster replay`.

    It has names, labels and requests of all pods.
    """
    from muster.cli.whatif import save_snapshot

    save_snapshot(_scheduler(coordinator, cluster_state, state_dir), file, redacted=redact)


def _scheduler(coordinator: str, cluster_state: str, state_dir: Path | None) -> "Addresses":
    """Raises CliError."""
    from muster.cli.cluster_state import find_cluster_state
    from muster.cli.coordinator import find_coordinator
    from muster.cli.endpoints import Addresses

    return Addresses(find_cluster_state(cluster_state, state_dir), find_coordinator(coordinator, state_dir))


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace: JSON lines, or CSV if it ends with .csv.")],
    *,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Number of nodes; all are equal, and free at the begin.", show_default=False),
    ] = None,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of `muster snapshot` instead of --nodes: the cluster at the begin, with its pods, gangs and "
            "settings.",
            show_default=False,
        ),
    ] = None,
    node: Annotated[
        str, typer.Option(metavar="RESOURCES", help="What each of --nodes has.")
    ] = "cpu=96,memory=1Ti,nvidia.com/gpu=8",
    rack_size: Annotated[int, typer.Option(min=0, help="Nodes of a rack; 0: no racks.")] = 16,
    mode: Annotated[
        list[str] | None,
        typer.Option(help="muster, fcfs (no backfill) or pod-by-pod; may be repeated.", show_default="muster"),
    ] = None,
    placement: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|HOST:PORT",
            help="placement, first-fit, or the address of your own, which watches --listen; may be repeated.",
            show_default="placement",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE[,VALUE...]",
            help="Setting of the coordinator, e.g. starvation-after-seconds=30,300; several values are compared.",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the cluster-state for a placement of your own.")
    ] = "127.0.0.1:7001",
    insecure: Insecure = False,
    until: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Stop at this time of the trace.", show_default=False)
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Play a trace of submissions in virtual time through the coordinator's rules and a real placement.

    Needs no cluster: the trace is played on --nodes that are free, or on a --snapshot. Prints utilisation,
    fragmentation, preemptions, and waits by size and priority. Several modes, placements or settings are compared.
    """
    from muster.cli.listening import listen_address
    from muster.cli.replay import ReplayRequest, replay
    from muster.cli.whatif import load_snapshot
    from muster.forecast.suite import Nodes

    if (nodes is None) == (snapshot is None):
        raise CliError(
            "a replay begins with equal nodes or with a snapshot", hint="give either --nodes or --snapshot", usage=True
        )
    request = ReplayRequest(
        trace,
        Nodes(nodes, node, rack_size) if nodes is not None else load_snapshot(snapshot or Path()),
        mode or ["muster"],
        placement or ["placement"],
        set_ or [],
        listen_address(listen, insecure=insecure),
        until,
    )
    replay(request, as_json=output is Output.JSON)


@app.command("generate-trace")
def generate_trace(
    *,
    days: Annotated[float, typer.Option(min=0, help="Time for which gangs are submitted.")] = 1.0,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the cluster that the trace is for.")],
    load: Annotated[float, typer.Option(min=0, help="GPU time submitted, as a share of what the GPUs have.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal traces.")] = 0,
) -> None:
    """Print a synthetic trace as JSON lines, after published figures of a GPU cluster."""
    from muster.cli.replay import generate_trace
    from muster.forecast.suite import Workload

    generate_trace(Workload(days, gpus, load, seed))


@app.command("prepare-etcd")
def prepare_etcd(
    *,
    etcd: Annotated[str, typer.Option(metavar="HOST:PORT[,...]", help="Client endpoints of etcd.")] = "127.0.0.1:2379",
    user: Annotated[str, typer.Option(help="etcd user of the coordinators.")] = "muster",
    password_file: Annotated[Path, typer.Option(metavar="FILE", help="Password of that user.")],
    root_password_file: Annotated[Path, typer.Option(metavar="FILE", help="Password of the etcd user root.")],
    prefix: Annotated[str, typer.Option(help="Key prefix that the user may read and write.")] = "/muster/v1",
    tls_certificate_file: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None,
    tls_key_file: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None,
    tls_ca_file: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for etcd to answer.")] = 300,
) -> None:
    """Create etcd's users and enable authentication. Idempotent."""
    from muster.cli.prepare_etcd import Etcd, prepare_etcd

    server = Etcd(etcd, tls_certificate_file, tls_key_file, tls_ca_file)
    prepare_etcd(server, user, password_file, root_password_file, prefix, timeout)


@app.command()
def version(
    *, output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT
) -> None:
    """Print the version."""
    import json
    from importlib.metadata import version

    number = version("muster")
    typer.echo(json.dumps({"version": number}) if output is TextOutput.JSON else number)


def run() -> None:
    """Entry point of the program muster."""
    with exit_on_error():
        app()
