"""The placement of `muster up`: one of Muster's own, or one that the user runs."""

import socket
from typing import Final, NamedTuple

from muster.cli.errors import CliError
from muster.config.settings import is_loopback

_PROGRAMS: Final = {"best-fit": "placement", "first-fit": "first-fit"}
"""Names in `muster run` by the names that users give."""


class Placement(NamedTuple):
    """`program`: its name in `muster run`. `address`: of the user's own instead, which watches `listen`, or empty."""

    program: str
    address: str = ""
    listen: str = ""


def chosen_placement(name: str, listen: str) -> Placement:
    """The placement of that name or address. Raises CliError."""
    if name in _PROGRAMS:
        return Placement(_PROGRAMS[name])
    if _host_and_port(name) is None:
        raise CliError(
            f"--placement {name!r} is not a placement",
            hint=f"use {', '.join(_PROGRAMS)}, or the address HOST:PORT of a placement that you run",
            usage=True,
        )
    _check_free(listen)
    return Placement("placement", name, listen)


def _check_free(listen: str) -> None:
    """Raises CliError if cluster-state cannot listen there."""
    address = _host_and_port(listen)
    if address is None:
        raise CliError(f"--listen {listen!r} is not an address HOST:PORT", usage=True)
    if not is_loopback(listen):
        raise CliError(
            f"--listen {listen!r} can be reached from the network, and the local cluster has no TLS",
            hint="listen on 127.0.0.1",
            usage=True,
        )
    try:
        socket.create_server(address).close()
    except OSError as error:
        raise CliError(
            f"cluster-state cannot listen on {listen}: {error.strerror or error}",
            hint="choose another address with --listen, and start your placement with that one",
        ) from error


def _host_and_port(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        return None
    return host.strip("[]"), int(port)
