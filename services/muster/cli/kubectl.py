"""`kubectl muster`: the commands about gangs as a kubectl plugin, for the cluster that kubectl talks to.

kubectl starts the program kubectl-muster with all arguments after `muster`. kubectl's own options (--kubeconfig,
--context, -n, ...) may be anywhere among them and are passed on whenever the plugin calls kubectl.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct

from muster.cli.discovery import Kubectl, MusterDiscovery
from muster.cli.endpoints import Addresses
from muster.cli.errors import CliError, exit_on_error
from muster.cli.options import Forecast, Output, Redact, TextOutput
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

_KUBECTL_OPTIONS: Final = (
    *("--kubeconfig", "--context", "--cluster", "--user", "--as", "--as-group", "--as-uid", "-s", "--server"),
    *("--token", "--certificate-authority", "--client-certificate", "--client-key", "--tls-server-name"),
    *("--cache-dir", "--request-timeout"),
)
_NAMESPACE: Final = ("-n", "--namespace")
_ALL_NAMESPACES: Final = ("-A", "--all-namespaces")
_DISCOVERY_OPTIONS: Final = {
    "--coordinator": "MUSTER_COORDINATOR",
    "--cluster-state": "MUSTER_CLUSTER_STATE",
    "--muster-namespace": "MUSTER_NAMESPACE",
    "--pool": "MUSTER_POOL",
}
"""Option -> environment variable that it overrides."""

app = typer.Typer(
    name="kubectl muster",
    help="Show gangs and topology of the cluster that kubectl talks to.",
    epilog="kubectl's options, such as --kubeconfig, --context, -n and -A, may be anywhere. Muster is located by the "
    "ConfigMap kube-public/muster, or by a port forward in the namespace --muster-namespace (muster-system), to the "
    "services of the node pool --pool, or at the addresses of --coordinator and --cluster-state HOST:PORT.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Arguments(Struct):
    """The command line, split into options of kubectl, options for discovery, and the rest for the commands."""

    kubectl: tuple[str, ...] = ()
    """Options for kubectl, in its own form."""
    namespace: str = ""
    all_namespaces: bool = False
    discovery: dict[str, str] = {}
    """By environment variable."""
    rest: tuple[str, ...] = ()


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Raises CliError if an option lacks its value."""
    parsed, remaining, rest = Arguments(), list(arguments), []
    kubectl: list[str] = []
    while remaining:
        argument = remaining.pop(0)
        name, equals, value = argument.partition("=")
        if argument in _ALL_NAMESPACES:
            parsed.all_namespaces = True
        elif name in (*_KUBECTL_OPTIONS, *_NAMESPACE, *_DISCOVERY_OPTIONS):
            if not equals:
                if not remaining:
                    raise CliError(f"{name} needs a value", usage=True)
                value = remaining.pop(0)
            if name in _NAMESPACE:
                parsed.namespace = value
            elif name in _DISCOVERY_OPTIONS:
                parsed.discovery[_DISCOVERY_OPTIONS[name]] = value
            else:
                kubectl += [name, value]
        elif argument == "--":
            rest += [argument, *remaining]
            break
        else:
            rest.append(argument)
    parsed.kubectl, parsed.rest = tuple(kubectl), tuple(rest)
    return parsed


@app.command()
def gangs(
    context: typer.Context,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing changes.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """List the gangs of a namespace, or of all with -A: phase and reason of each."""
    from muster.cli.gangs import list_gangs, watch_gangs

    arguments, discovery = _discovery(context)
    namespace = "" if arguments.all_namespaces else _namespace(arguments, discovery)
    show = watch_gangs if watch else list_gangs
    with discovery.coordinator() as address:
        show(address, namespace, as_json=output is Output.JSON)


@app.command()
def top(
    context: typer.Context,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
) -> None:
    """Show health, queue, starts and utilisation of the cluster as they change; q ends it."""
    from muster.cli.top import top

    _, discovery = _discovery(context)
    with discovery.coordinator() as coordinator, discovery.cluster_state() as cluster_state:
        top(coordinator, cluster_state, once=once, as_json=output is TextOutput.JSON)


@app.command()
def explain(
    context: typer.Context,
    gang: Annotated[str, typer.Argument(metavar="GANG", help="Name, namespace/name, or dialect/namespace/name.")],
    *,
    limit: PlayLimit = 10,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
    forecast: Forecast = "",
) -> None:
    """Explain one gang: its declaration, its phase, what it lacks, and changes with which it would start now.

    Each of these changes is played on a copy of the cluster before it is listed.
    """
    from muster.cli.explain import explain
    from muster.cli.played_changes import Play

    arguments, discovery = _discovery(context)
    name = _qualified(gang, arguments, discovery)
    with discovery.coordinator() as address:
        play = Play(limit, forecast, discovery.cluster_state)
        explain(address, name, as_json=output is TextOutput.JSON, play=play, kubectl=discovery.kubectl)


@app.command()
def trace(
    context: typer.Context,
    gang: Annotated[str, typer.Argument(metavar="GANG", help="Name, namespace/name, or dialect/namespace/name.")],
    *,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
    everything: Annotated[bool, typer.Option("--all", help="Every span, without summaries.")] = False,
    file: Annotated[
        Path | None, typer.Option(help="Trace file; default: that of the local cluster.", show_default=False)
    ] = None,
) -> None:
    """Show a gang's trace as a tree. If its spans are in a tracing backend, print the trace id to look for there."""
    from muster.cli.trace import trace

    arguments, discovery = _discovery(context)
    name = _qualified(gang, arguments, discovery)
    with discovery.coordinator() as address:
        found = file or discovery.trace_file()
        if found is None:
            raise _trace_in_backend(address, name)
        trace(found, address, name, as_json=output is TextOutput.JSON, everything=everything)


@app.command()
def topology(
    context: typer.Context,
    tree: Annotated[str, typer.Argument(metavar="[TREE]", help="Only this tree.", show_default=False)] = "",
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show every node, too.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show the topology trees: domains, nodes, free capacity, and problems."""
    from muster.cli.topology import show_topology

    _, discovery = _discovery(context)
    with discovery.cluster_state() as address:
        show_topology(address, tree, with_nodes=nodes, as_json=output is Output.JSON)


@app.command()
def queue(
    context: typer.Context,
    *,
    start: Annotated[bool, typer.Option("--start", help="Also when each is expected to start.")] = False,
    limit: StartsLimit = 60,
    forecast: Forecast = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """List the gangs of a namespace that wait, or of all with -A, in queue order."""
    from muster.cli.queue import show_queue, starts_by_itself, starts_by_service

    arguments, discovery = _discovery(context)
    namespace = "" if arguments.all_namespaces else _namespace(arguments, discovery)
    with discovery.coordinator() as address:
        starts = None
        if start and forecast:
            starts = starts_by_service(forecast, namespace, limit)
        elif start:
            with discovery.cluster_state() as cluster_state:
                starts = starts_by_itself(Addresses(cluster_state, address), limit)
        show_queue(address, namespace, starts, as_json=output is Output.JSON)


@app.command()
def whatif(
    context: typer.Context,
    *,
    file: WhatIfFile,
    count: WhatIfCount = None,
    topology: WhatIfTopology = "",
    priority_class: WhatIfPriorityClass = "",
    without: WhatIfWithout = None,
    without_node: WhatIfWithoutNode = None,
    add_nodes: WhatIfAddNodes = 0,
    like: WhatIfLike = "",
    limit: WhatIfLimit = 30,
    forecast: Forecast = "",
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="Output format.")] = TextOutput.TEXT,
) -> None:
    """Say what would happen if manifests were applied now: nothing is applied.

    Exit code 0: all gangs start now; 3: later; 4: never, as long as nothing changes but the ends of pods that are
    expected; 5: not found in time.
    """
    from muster.cli.whatif import take_snapshot, whatif, whatif_by_service
    from muster.cli.whatif_question import WhatIfRequest

    arguments, discovery = _discovery(context)
    request = WhatIfRequest(
        files=file,
        namespace=_namespace(arguments, discovery),
        count=count,
        topology=topology,
        priority_class=priority_class,
        without_gangs=without or [],
        without_nodes=without_node or [],
        add_nodes=add_nodes,
        like=like,
        limit_seconds=limit,
    )
    as_json = output is TextOutput.JSON
    if forecast:
        whatif_by_service(request, forecast, discovery.kubectl, as_json=as_json)
    with discovery.coordinator() as coordinator, discovery.cluster_state() as cluster_state:
        present = take_snapshot(Addresses(cluster_state, coordinator))
    whatif(request, present, discovery.kubectl, as_json=as_json)


@app.command()
def snapshot(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    *,
    redact: Redact = False,
) -> None:
    """Save what the scheduler knows, for `muster whatif --snapshot`. It has names, labels and requests of all pods."""
    from muster.cli.whatif import save_snapshot

    _, discovery = _discovery(context)
    with discovery.coordinator() as coordinator, discovery.cluster_state() as cluster_state:
        save_snapshot(Addresses(cluster_state, coordinator), file, redacted=redact)


def run() -> None:
    """Entry point of the program kubectl-muster."""
    with exit_on_error():
        arguments = parse_arguments(sys.argv[1:])
        app(list(arguments.rest), obj=arguments)


def _discovery(context: typer.Context) -> tuple[Arguments, MusterDiscovery]:
    arguments: Arguments = context.obj
    return arguments, MusterDiscovery(Kubectl(arguments.kubectl), arguments.discovery)


def _namespace(arguments: Arguments, discovery: MusterDiscovery) -> str:
    return arguments.namespace or discovery.kubectl.namespace()


def _qualified(gang: str, arguments: Arguments, discovery: MusterDiscovery) -> str:
    return gang if "/" in gang else f"{_namespace(arguments, discovery)}/{gang}"


def _trace_in_backend(address: str, gang: str) -> CliError:
    from muster.cli.coordinator import call, explain_gang

    found = call(address, lambda stub: explain_gang(stub, address, gang)).gang
    trace_id = found.trace_id
    if not trace_id and not found.members:
        return CliError(f"{gang} has no trace yet", hint="its first pod starts one, where traces are exported")
    if not trace_id:
        return CliError(
            f"{gang} has no trace: this cluster exports none, or its sampler left this gang out",
            hint="set tracing.endpoint in the values of the chart; docs/tracing.md has the details",
        )
    return CliError(
        "this cluster writes no trace file on this machine",
        hint=f"look for trace {trace_id} in the tracing backend that Muster exports to",
    )


if __name__ == "__main__":
    run()
