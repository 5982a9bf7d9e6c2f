"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.errors import CliError
from muster.config.settings import is_loopback


class Output(StrEnum):
    """Output format of commands that print a table."""

    TABLE = "table"
    JSON = "json"


class TextOutput(StrEnum):
    """Output format of commands that print text."""

    TEXT = "text"
    JSON = "json"


Coordinator = Annotated[
    str,
    typer.Option(
        "--coordinator",
        metavar="HOST:PORT",
        envvar="MUSTER_COORDINATOR",
        help="Address of the coordinator; default: that of the local cluster in the state directory. For mutual TLS "
        "set MUSTER_CLI_TLS__CERTIFICATE_FILE, MUSTER_CLI_TLS__KEY_FILE and MUSTER_CLI_TLS__CA_FILE.",
        show_default=False,
    ),
]
ClusterState = Annotated[
    str,
    typer.Option(
        "--cluster-state",
        metavar="HOST:PORT",
        envvar="MUSTER_CLUSTER_STATE",
        help="Address of cluster-state; default: that of the local cluster in the state directory. For mutual TLS see "
        "--coordinator of the other commands.",
        show_default=False,
    ),
]
StateDirectory = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="MUSTER_STATE_DIR",
        help="State directory of `muster up`; default: .muster here or in a directory above.",
        show_default=False,
    ),
]
Forecast = Annotated[
    str,
    typer.Option(
        "--forecast",
        metavar="HOST:PORT",
        envvar="MUSTER_FORECAST",
        help="Address of the service forecast, which finds the answer then; default: this command does.",
        show_default=False,
    ),
]
Redact = Annotated[
    bool,
    typer.Option(
        "--redact", help="Replace the names of namespaces, gangs, pods and nodes, and labels, by others consistently."
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Listen without TLS on an address that can be reached from the network."),
]


def checked_listen(listen: str, *, insecure: bool) -> str:
    """An address to listen on without TLS: of this machine alone, unless `insecure`. Raises CliError."""
    if not insecure and not is_loopback(listen):
        raise CliError(
            f"--listen {listen} can be reached from the network, and there is no TLS: anyone could read the cluster",
            hint="listen on 127.0.0.1, or say --insecure",
            usage=True,
        )
    return listen
