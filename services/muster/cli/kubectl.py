"""`kubectl muster`: the commands that ask about gangs, as a plugin of kubectl, for the cluster that kubectl talks to.

kubectl starts the program kubectl-muster with all that stands after `muster`. Options of kubectl (--kubeconfig,
--context, -n, ...) may stand anywhere there, and are handed on to kubectl whenever the plugin needs something of it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct

from muster.cli.errors import CliError
from muster.cli.options import Output, TextOutput
from muster.cli.reaching import Kubectl, Reach

_HANDED_ON: Final = (
    *("--kubeconfig", "--context", "--cluster", "--user", "--as", "--as-group", "--as-uid", "-s", "--server"),
    *("--token", "--certificate-authority", "--client-certificate", "--client-key", "--tls-server-name"),
    *("--cache-dir", "--request-timeout"),
)
_NAMESPACE: Final = ("-n", "--namespace")
_ALL_NAMESPACES: Final = ("-A", "--all-namespaces")
_OURS: Final = {
    "--coordinator": "MUSTER_COORDINATOR",
    "--cluster-state": "MUSTER_CLUSTER_STATE",
    "--muster-namespace": "MUSTER_NAMESPACE",
}

app = typer.Typer(
    name="kubectl muster",
    help="Ask Muster about gangs, on the cluster that kubectl talks to.",
    epilog="Options of kubectl, as --kubeconfig, --context, -n and -A, may stand anywhere. Muster is found by the "
    "ConfigMap kube-public/muster, or forwarded to in the namespace --muster-namespace (muster-system); or say with "
    "--coordinator and --cluster-state HOST:PORT where it listens.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Asked(Struct):
    """What stood on the command line, apart from what the commands take themselves."""

    kubectl: tuple[str, ...] = ()
    """Options for kubectl, in its own form."""
    namespace: str = ""
    all_namespaces: bool = False
    ours: dict[str, str] = {}
    """By variable."""
    rest: tuple[str, ...] = ()


def taken_apart(arguments: Sequence[str]) -> Asked:
    """Raises CliError if an option lacks its value."""
    asked, given, rest = Asked(), list(arguments), []
    handed_on: list[str] = []
    while given:
        argument = given.pop(0)
        name, equals, value = argument.partition("=")
        if argument in _ALL_NAMESPACES:
            asked.all_namespaces = True
        elif name in (*_HANDED_ON, *_NAMESPACE, *_OURS):
            if not equals:
                if not given:
                    raise CliError(f"{name} needs a value", usage=True)
                value = given.pop(0)
            if name in _NAMESPACE:
                asked.namespace = value
            elif name in _OURS:
                asked.ours[_OURS[name]] = value
            else:
                handed_on += [name, value]
        elif argument == "--":
            rest += [argument, *given]
            break
        else:
            rest.append(argument)
    asked.kubectl, asked.rest = tuple(handed_on), tuple(rest)
    return asked


@app.command()
def gangs(
    context: typer.Context,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, showing changes.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """List gangs of a namespace, or of all with -A: where each stands and why it waits."""
    from muster.cli.gangs import list_gangs, watch_gangs

    asked, reach = _reach(context)
    namespace = "" if asked.all_namespaces else _namespace(asked, reach)
    show = watch_gangs if watch else list_gangs
    with reach.coordinator() as address:
        show(address, namespace, as_json=output is Output.JSON)


@app.command()
def explain(
    context: typer.Context,
    gang: Annotated[str, typer.Argument(metavar="GANG", help="Name, namespace/name, or dialect/namespace/name.")],
    *,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="How to print.")] = TextOutput.TEXT,
) -> None:
    """Tell all about one gang: what was declared, state, what it misses, what would let it start."""
    from muster.cli.explain import explain

    asked, reach = _reach(context)
    name = _qualified(gang, asked, reach)
    with reach.coordinator() as address:
        explain(address, name, as_json=output is TextOutput.JSON)


@app.command()
def trace(
    context: typer.Context,
    gang: Annotated[str, typer.Argument(metavar="GANG", help="Name, namespace/name, or dialect/namespace/name.")],
    *,
    output: Annotated[TextOutput, typer.Option("--output", "-o", help="How to print.")] = TextOutput.TEXT,
    everything: Annotated[bool, typer.Option("--all", help="Every span, also of many alike.")] = False,
    file: Annotated[
        Path | None, typer.Option(help="Trace file to read; by default that of a local cluster.", show_default=False)
    ] = None,
) -> None:
    """Show a gang's trace as a tree. Traces of a real cluster are in its tracing backend: then its id is told."""
    from muster.cli.trace import trace

    asked, reach = _reach(context)
    name = _qualified(gang, asked, reach)
    with reach.coordinator() as address:
        kept = file or reach.trace_file()
        if kept is None:
            raise _kept_elsewhere(address, name)
        trace(kept, address, name, as_json=output is TextOutput.JSON, everything=everything)


@app.command()
def topology(
    context: typer.Context,
    tree: Annotated[str, typer.Argument(metavar="[TREE]", help="Only this tree.", show_default=False)] = "",
    *,
    nodes: Annotated[bool, typer.Option("--nodes", help="Nodes one by one, too.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Show the topology trees: domains, nodes, what is free in them, and what is wrong."""
    from muster.cli.topology import show_topology

    _, reach = _reach(context)
    with reach.cluster_state() as address:
        show_topology(address, tree, with_nodes=nodes, as_json=output is Output.JSON)


def run() -> None:
    """Entry point: errors of our own become one line on stderr and an exit code."""
    try:
        asked = taken_apart(sys.argv[1:])
        app(list(asked.rest), obj=asked)
    except CliError as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


def _reach(context: typer.Context) -> tuple[Asked, Reach]:
    asked: Asked = context.obj
    return asked, Reach(Kubectl(asked.kubectl), asked.ours)


def _namespace(asked: Asked, reach: Reach) -> str:
    return asked.namespace or reach.kubectl.namespace()


def _qualified(gang: str, asked: Asked, reach: Reach) -> str:
    return gang if "/" in gang else f"{_namespace(asked, reach)}/{gang}"


def _kept_elsewhere(address: str, gang: str) -> CliError:
    from muster.cli.coordinator import ask, explain_gang

    trace_id = ask(address, lambda stub: explain_gang(stub, address, gang)).gang.trace_id
    if not trace_id:
        return CliError(f"{gang} has no trace yet", hint="it gets one with its first pod")
    return CliError(
        "traces of this cluster are not in a file here",
        hint=f"look for trace {trace_id} in the tracing backend that Muster sends them to",
    )


if __name__ == "__main__":
    run()
