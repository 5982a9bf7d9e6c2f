"""The program `muster`: its commands and their options. A command's code is imported when it runs, for a fast start."""

import os
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.errors import exit_on_error
from muster.cli.options import ClusterState, Coordinator, Output, StateDirectory, TextOutput
from muster.cli.plugins import PluginGroup
from muster.cli.service_commands import ServiceGroup

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # the command reports errors itself
# gRPC's fork handlers crash one in twenty child processes with SIGSEGV before exec, if they are started on uvloop with
# calls in flight. No code here runs Python after a fork, so the handlers are not needed. Must be set before gRPC loads.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

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
def explain(
    gang: Annotated[str, typer.Argument(metavar="GANG", help="Name, namespace/name, or dialect/namespace/name.")],
    *,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
    coordinator: Coordinator = "",
    state_dir: StateDirectory = None,
) -> None:
    """Explain one gang: its phase, what it lacks, the gangs ahead of it, and what would let it start."""
    from muster.cli.coordinator import find_coordinator
    from muster.cli.discovery import local_kubectl
    from muster.cli.explain import explain

    address = find_coordinator(coordinator, state_dir)
    kubectl = None if coordinator else local_kubectl(state_dir)
    explain(address, gang, as_json=output is TextOutput.JSON, kubectl=kubectl)


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
    list_cases: Annotated[bool, typer.Option("--list", help="List the cases without running them.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Run the documented cases against an implementation of placement in any language.

    Start the implementation with the address of --listen as its cluster-state; it needs nothing else.
    """
    from muster.cli.conformance import ConformanceRun, print_cases, run_suite

    if list_cases:
        print_cases(only or [], as_json=output is Output.JSON)
    else:
        run_suite(ConformanceRun(target, listen, only or [], require or [], wait, timeout), output is Output.JSON)


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
