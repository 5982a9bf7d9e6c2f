"""gRPC channels of the command line, and TLS errors of its calls in words for the user."""

import grpc
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from muster.cli.errors import CliError
from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.rpc.channel import open_channel
from muster.rpc.credentials import BadCertificates

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="MUSTER_CLI_", env_nested_delimiter="__")

    tls: TlsSettings = PLAIN_TEXT
    tls_server_name: str = ""


def channel_to(address: str, service: str = "coordinator") -> grpc.aio.Channel:
    """Channel with TLS by MUSTER_CLI_TLS__CERTIFICATE_FILE, _KEY_FILE and _CA_FILE; plain text if they are not set.

    The server's certificate must be for MUSTER_CLI_TLS_SERVER_NAME; if that is not set, for the host of the address,
    or for muster-SERVICE if that host is this machine, as with a forwarded port. Raises CliError.
    """
    try:
        settings = _Settings()
        return open_channel(address, settings.tls, settings.tls_server_name or _server_name(address, service))
    except ValidationError as error:
        detail = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise CliError(f"MUSTER_CLI_TLS__*: {detail}", usage=True) from error
    except BadCertificates as error:
        raise CliError(f"MUSTER_CLI_TLS__*: {error}", usage=True) from error


def _server_name(address: str, service: str) -> str:
    host = address.rpartition(":")[0].strip("[]")
    return f"muster-{service}" if host in _LOOPBACK else ""


def tls_error(service: str, address: str, detail: str) -> CliError | None:
    """The error for a call that failed because of TLS, from the details of its status; None if it had another cause."""
    if "Hostname Verification" in detail:
        return CliError(
            f"the certificate of {service} at {address} is for another name",
            hint="set MUSTER_CLI_TLS_SERVER_NAME to the name in the certificate",
        )
    closed_by_peer = "failed to connect" in detail and "Socket closed" in detail  # a crash says only that it is closed
    if not closed_by_peer and not any(mark in detail for mark in ("handshake failed", "SSL_ERROR")):
        return None
    return CliError(
        f"TLS with {service} at {address} failed: {detail}",
        hint="MUSTER_CLI_TLS__CERTIFICATE_FILE, MUSTER_CLI_TLS__KEY_FILE and MUSTER_CLI_TLS__CA_FILE must name a "
        "certificate that the server trusts, and the authority of the server's; unset them if it speaks plain text",
    )
