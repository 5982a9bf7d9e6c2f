"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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
    typer.Option(
        "--insecure",
        help="Allow --listen to be an address of the network: there is no TLS, so anyone there can read what is "
        "served.",
    ),
]
