"""Commands that serve a cluster listen on this machine alone, unless told otherwise."""

import pytest
from typer.testing import CliRunner

from muster.cli.errors import CliError
from muster.cli.main import app
from muster.cli.options import checked_listen


@pytest.mark.parametrize(
    "command",
    [
        ["conformance", "placement", "--listen", "0.0.0.0:7001"],
        ["conformance", "replay", "file", "--listen", "[::]:7001"],
        ["replay", "trace", "--nodes", "2", "--listen", "10.0.0.1:7001"],
    ],
)
def test_an_address_of_the_network_is_refused(command: list[str]) -> None:
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, CliError)
    assert str(result.exception).startswith(f"--listen {command[-1]} can be reached from the network, and there is no")


@pytest.mark.parametrize(("address", "insecure"), [("127.0.0.1:1", False), ("[::1]:1", False), ("0.0.0.0:1", True)])
def test_this_machine_and_insecure_addresses_are_used(address: str, insecure: bool) -> None:
    assert checked_listen(address, insecure=insecure) == address
