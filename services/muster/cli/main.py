"""The `muster` command: what it can do, by name. A command's code is imported when it runs: starting is fast."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.errors import CliError
from muster.cli.options import ClusterState, Coordinator, Output, StateDirectory, TextOutput
from muster.cli.plugins import PluginGroup
from muster.cli.service_commands import ServiceGroup

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # what goes wrong is said once, by the command
# What gRPC does around fork() ends one in twenty processes that are started on uvloop while calls are under way by
# SIGSEGV, before they are the program they are to be. Nobody here goes on in Python after a fork. It counts only before
# gRPC loads.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

app = typer.Typer(
    name="muster",
    cls=PluginGroup,
    help="A Kubernetes scheduler for gangs: pods that are worth something only when they start together.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(
    typer.Typer(
        name="run",
        cls=ServiceGroup,
        help="Run one service until SIGTERM: against the cluster of the kubeconfig, or the one it runs in.",
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
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, showing changes.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
    coordinator: Coordinator = "",
    state_dir: StateDirectory = None,
) -> None:
    """List gangs: where each stands and why it waits."""
    from muster.cli.coordinator import find_coordinator
    from muster.cli.gangs import list_gangs, watch_gangs

    show = watch_gangs if watch else list_gangs
    show(find_coordinator(coordinator, state_dir), namespace, as_json=output is Output.JSON)


@app.command()
def explain(
    gang: Annotated[str, typer.Argument(metavar="GANG", help="Name, namespace/name, or dialect/namespace/name.")],
    *,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="How to print.")] = TextOutput.TEXT,
    coordinator: Coordinator = "",
    state_dir: StateDirectory = None,
) -> None:
    """Tell all about one gang: state, what it misses, who is ahead, what would let it start."""
    from muster.cli.coordinator import find_coordinator
    from muster.cli.explain import explain

    explain(find_coordinator(coordinator, state_dir), gang, as_json=output is TextOutput.JSON)


@app.command()
def trace(
    gang: Annotated[
        str, typer.Argument(metavar="GANG", help="Name, namespace/name, dialect/namespace/name, or a trace id.")
    ],
    *,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="How to print.")] = TextOutput.TEXT,
    everything: Annotated[bool, typer.Option("--all", help="Every span, also of many alike.")] = False,
    file: Annotated[
        Path | None, typer.Option(help="Trace file to read instead of that of the local cluster.", show_default=False)
    ] = None,
    coordinator: Coordinator = "",
    state_dir: StateDirectory = None,
) -> None:
    """Show a gang's trace as a tree: what was done for it, where, and how long it took."""
    from muster.cli.coordinator import find_coordinator_if_any, find_trace_file
    from muster.cli.trace import trace

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
        str, typer.Option(metavar="HOST:PORT", help="Where the implementation serves PlacementService.")
    ] = "127.0.0.1:7003",
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Where to serve the cluster-state that the implementation is to follow."
        ),
    ] = "127.0.0.1:7001",
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only cases whose ids begin so, e.g. S or T05; may be repeated."),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help="Groups that must pass for exit code 0, or all.", show_default="safety"),
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds that the implementation has to come up.")] = 60,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that it has for an answer.")] = 10,
    list_cases: Annotated[bool, typer.Option("--list", help="List the cases and what each asks; run nothing.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Run the documented cases against an implementation of placement, in any language.

    Start it with the address of --listen as that of its cluster-state; it needs nothing else.
    """
    from muster.cli.conformance import Asked, list_all, run_suite

    if list_cases:
        list_all(only or [], as_json=output is Output.JSON)
    else:
        asked = Asked(target, listen, only or [], require or [], wait, timeout)
        run_suite(asked, as_json=output is Output.JSON)


@app.command()
def topology(
    tree: Annotated[str, typer.Argument(metavar="[TREE]", help="Only this tree.", show_default=False)] = "",
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="Nodes one by one, too.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
    cluster_state: ClusterState = "",
    state_dir: StateDirectory = None,
) -> None:
    """Show the topology trees: domains, nodes, what is free in them, and what is wrong."""
    from muster.cli.cluster import find_cluster_state
    from muster.cli.topology import show_topology

    address = find_cluster_state(cluster_state, state_dir)
    show_topology(address, tree, with_nodes=nodes, as_json=output is Output.JSON)


@app.command()
def check(
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where the pods are made.")] = "default",
    scheduler_name: Annotated[str, typer.Option(help="Whom the pods ask for.")] = "muster",
    image: Annotated[str, typer.Option(help="Their image, which need do nothing.")] = "registry.k8s.io/pause:3.10",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that they have.")] = 120,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="By default $KUBECONFIG, the default file, or the account of the pod.", show_default=False),
    ] = None,
) -> None:
    """Start a gang of two pods, see both run, and take them away; exit 1 with what they say if they do not."""
    from muster.cli.check import Trial, check
    from muster.config.settings import KubeSettings

    check(Trial(KubeSettings(kubeconfig=kubeconfig), namespace, scheduler_name, image, timeout))


@app.command("prepare-etcd")
def prepare_etcd(
    *,
    etcd: Annotated[str, typer.Option(metavar="HOST:PORT[,...]", help="etcd's client endpoints.")] = "127.0.0.1:2379",
    user: Annotated[str, typer.Option(help="User of the coordinators.")] = "muster",
    password_file: Annotated[Path, typer.Option(metavar="FILE", help="That user's password.")],
    root_password_file: Annotated[Path, typer.Option(metavar="FILE", help="Password of etcd's user root.")],
    prefix: Annotated[str, typer.Option(help="Below which the user may read and write.")] = "/muster/v1",
    tls_certificate_file: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None,
    tls_key_file: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None,
    tls_ca_file: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for an etcd that does not answer.")] = 300,
) -> None:
    """Make etcd's users and switch authentication on. What is as it should be is left alone."""
    from muster.cli.prepare_etcd import Etcd, prepare_etcd

    where = Etcd(etcd, tls_certificate_file, tls_key_file, tls_ca_file)
    prepare_etcd(where, user, password_file, root_password_file, prefix, timeout)


@app.command()
def version(
    *, output: Annotated[TextOutput, typer.Option("--output", "-o", help="How to print.")] = TextOutput.TEXT
) -> None:
    """Print the version."""
    import json
    from importlib.metadata import version

    number = version("muster")
    typer.echo(json.dumps({"version": number}) if output is TextOutput.JSON else number)


def run() -> None:
    """Entry point: errors of our own become one line on stderr and an exit code."""
    try:
        app()
    except CliError as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `muster gangs | head`
        sys.stderr.close()
        sys.exit(141)
