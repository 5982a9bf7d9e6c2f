"""Asking the coordinator: finding it, and its refusals in words for the user."""

import asyncio
import contextlib
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from muster.cli.endpoints import Endpoints, find_endpoints, read_endpoints
from muster.cli.errors import CliError
from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.rpc.channel import open_channel
from muster.rpc.credentials import BadCertificates

CALL_SECONDS = 5.0
_SUGGESTIONS = 3
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")

T = TypeVar("T")

if TYPE_CHECKING:
    from muster.coordinator.v1.coordinator_pb2_grpc import CoordinatorServiceAsyncStub as Stub


def find_coordinator(address: str, state_directory: Path | None) -> str:
    """Address given, or that of the local cluster. Raises CliError if there is neither."""
    found = find_coordinator_if_any(address, state_directory)
    if found is None:
        raise CliError(
            "there is no coordinator to ask: no local cluster runs here",
            hint="start one with `muster up`, or say where it is with --coordinator HOST:PORT or MUSTER_COORDINATOR",
            usage=True,
        )
    return found


def find_coordinator_if_any(address: str, state_directory: Path | None) -> str | None:
    """Like `find_coordinator`; None instead of an error."""
    if address:
        return address
    endpoints = _endpoints(state_directory)
    return endpoints.coordinator if endpoints else None


def find_trace_file(file: Path | None, state_directory: Path | None) -> Path:
    """File given, or that of the local cluster, also of one that has ended. Raises CliError if there is none."""
    endpoints = _endpoints(state_directory)
    default = (state_directory or Path(".muster")) / "traces.jsonl"
    found = file or (Path(endpoints.traces) if endpoints and endpoints.traces else default)
    if not found.exists():
        raise CliError(
            f"there is no trace file {found}",
            hint="`muster up` keeps one in its state directory; on a cluster, traces are in the tracing backend",
            usage=file is not None,
        )
    return found


def _endpoints(state_directory: Path | None) -> Endpoints | None:
    return find_endpoints(Path.cwd()) if state_directory is None else read_endpoints(state_directory)


def ask(address: str, question: Callable[["Stub"], Awaitable[T]]) -> T:
    """Ask one thing and return the answer. Raises CliError."""

    async def asking() -> T:
        async with connected(address) as stub:
            return await question(stub)

    return asyncio.run(asking())


@contextlib.asynccontextmanager
async def connected(address: str) -> "AsyncIterator[Stub]":
    """A stub; failures of calls made with it come out as CliError."""
    channel = channel_to(address)
    try:
        yield coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    except grpc.aio.AioRpcError as error:
        raise in_words(address, error) from error
    finally:
        await channel.close()


def channel_to(address: str, service: str = "coordinator") -> grpc.aio.Channel:
    """With TLS by MUSTER_CLI_TLS__CERTIFICATE_FILE, _KEY_FILE and _CA_FILE, in plain text if they are not set.

    The server's certificate must be for MUSTER_CLI_TLS_SERVER_NAME; if that is not set, for the host of the address,
    or for muster-SERVICE where that is this machine, as with a port that is forwarded. Raises CliError.
    """
    try:
        settings = _Settings()
        return open_channel(address, settings.tls, settings.tls_server_name or _server_name(address, service))
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise CliError(f"MUSTER_CLI_TLS__*: {said}", usage=True) from error
    except BadCertificates as error:
        raise CliError(f"MUSTER_CLI_TLS__*: {error}", usage=True) from error


def _server_name(address: str, service: str) -> str:
    host = address.rpartition(":")[0].strip("[]")
    return f"muster-{service}" if host in _THIS_MACHINE else ""


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="MUSTER_CLI_", env_nested_delimiter="__")

    tls: TlsSettings = PLAIN_TEXT
    tls_server_name: str = ""


def in_words(address: str, error: grpc.aio.AioRpcError) -> CliError:
    """What a failed call means for the user."""
    said = error.details() or error.code().name
    if (without_tls := no_common_tls("the coordinator", address, said)) is not None:
        return without_tls
    if error.code() is grpc.StatusCode.UNAVAILABLE and _not_reached(said):
        return CliError(
            f"nothing answers at {address}, where the coordinator should be",
            hint="is it running? `muster up` starts a local one; --coordinator or MUSTER_COORDINATOR says where else",
        )
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return CliError(
            f"the coordinator at {address} cannot tell: {said}", hint="ask the replica that leads, or try again"
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CliError(f"the coordinator at {address} gave no answer in {CALL_SECONDS:g} s")
    return CliError(f"the coordinator at {address} refused: {said} ({error.code().name})")


def no_common_tls(what: str, address: str, said: str) -> CliError | None:
    """What it means for the user, if the call failed because of TLS: only one side has it, or trusts the other."""
    if "Hostname Verification" in said:
        return CliError(
            f"what answers at {address} has no certificate for the name by which it was called",
            hint="MUSTER_CLI_TLS_SERVER_NAME is the name that the certificate has to be for",
        )
    hung_up = "failed to connect" in said and "Socket closed" in said  # a crash says only that it is closed
    if not hung_up and not any(mark in said for mark in ("handshake failed", "SSL_ERROR")):
        return None
    return CliError(
        f"there is no way to speak TLS with {what} at {address}: {said}",
        hint="MUSTER_CLI_TLS__CERTIFICATE_FILE, MUSTER_CLI_TLS__KEY_FILE and MUSTER_CLI_TLS__CA_FILE name a certificate"
        " that it trusts, and who signed its own; they are not to be set where it speaks plain text",
    )


def _not_reached(said: str) -> bool:
    return any(mark in said for mark in ("failed to connect", "Connection refused", "DNS resolution", "tcp handshaker"))


async def explain_gang(stub: "Stub", address: str, name: str) -> coordinator_pb2.ExplainResponse:
    """Explain, with suggestions when the name fits none or several. Raises CliError."""
    try:
        return await stub.Explain(coordinator_pb2.ExplainRequest(gang=name), timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            known = await stub.List(coordinator_pb2.ListRequest(), timeout=CALL_SECONDS)
            raise unknown_gang(name, [gang.id for gang in known.gangs]) from error
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            raise CliError(error.details() or f"{name!r} is not the name of one gang", usage=True) from error
        raise


def unknown_gang(name: str, ids: list[str]) -> CliError:
    """There is no such gang; those with similar names are suggested."""
    short = {candidate: candidate.rpartition("/")[2] for candidate in ids}
    wanted = name.rpartition("/")[2]
    close = difflib.get_close_matches(wanted, set(short.values()), n=_SUGGESTIONS, cutoff=0.5)
    similar = [candidate for match in close for candidate in ids if short[candidate] == match][:_SUGGESTIONS]
    if similar:
        hint = "did you mean " + ", ".join(similar) + "?"
    else:
        hint = "`muster gangs` lists them" if ids else "there are no gangs at all yet"
    return CliError(f"no gang is named {name!r}", hint=hint)
