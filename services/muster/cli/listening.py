"""Checks addresses on which commands serve without TLS, by the rule for services."""

from muster.cli.errors import CliError
from muster.config.settings import is_loopback, parse_address


def listen_address(listen: str, *, insecure: bool) -> str:
    """Returns the address of --listen; one of the network only if `insecure`. Raises CliError."""
    try:
        address = parse_address(listen)
    except ValueError as error:
        raise CliError(f"--listen {listen!r} is no address: {error}", usage=True) from error
    if not insecure and not is_loopback(address):
        raise CliError(
            f"--listen {listen!r} can be reached from the network, and the command serves without TLS",
            hint="listen on 127.0.0.1, or give --insecure if everyone there may read what is served",
            usage=True,
        )
    return address
