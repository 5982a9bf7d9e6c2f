"""Client of the coordinator: locates it, calls it, and turns failed calls into errors for the user."""

import asyncio
import contextlib
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from muster.cli.channel import channel_to, tls_error
from muster.cli.endpoints import local_endpoints
from muster.cli.errors import CliError
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc

CALL_SECONDS = 5.0
_MAX_SUGGESTIONS = 3

T = TypeVar("T")

if TYPE_CHECKING:
    from muster.coordinator.v1.coordinator_pb2_grpc import CoordinatorServiceAsyncStub as Stub


def find_coordinator(address: str, state_directory: Path | None) -> str:
    """The given address, or that of the local cluster. Raises CliError if there is neither."""
    found = find_coordinator_if_any(address, state_directory)
    if found is None:
        raise CliError(
            "no coordinator found: no local cluster runs here",
            hint="start one with `muster up`, or give an address with --coordinator HOST:PORT or MUSTER_COORDINATOR",
            usage=True,
        )
    return found


def find_coordinator_if_any(address: str, state_directory: Path | None) -> str | None:
    """Like `find_coordinator`; None instead of an error."""
    if address:
        return address
    endpoints = local_endpoints(state_directory)
    return endpoints.coordinator if endpoints else None


def call(address: str, method: Callable[["Stub"], Awaitable[T]]) -> T:
    """Make one call and return its response. Raises CliError."""

    async def connect_and_call() -> T:
        async with connected(address) as stub:
            return await method(stub)

    return asyncio.run(connect_and_call())


@contextlib.asynccontextmanager
async def connected(address: str) -> "AsyncIterator[Stub]":
    """Stub whose failed calls raise CliError."""
    channel = channel_to(address)
    try:
        yield coordinator_pb2_grpc.CoordinatorServiceStub(channel)
    except grpc.aio.AioRpcError as error:
        raise call_error(address, error) from error
    finally:
        await channel.close()


def call_error(address: str, error: grpc.aio.AioRpcError) -> CliError:
    """The error to show for a failed call."""
    detail = error.details() or error.code().name
    if (failed_tls := tls_error("the coordinator", address, detail)) is not None:
        return failed_tls
    if error.code() is grpc.StatusCode.UNAVAILABLE and _is_unreachable(detail):
        return CliError(
            f"no coordinator answers at {address}",
            hint="is it running? `muster up` starts a local one; --coordinator or MUSTER_COORDINATOR sets its address",
        )
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return CliError(
            f"the coordinator at {address} is unavailable: {detail}", hint="call the leading replica, or try again"
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CliError(f"the coordinator at {address} did not answer within {CALL_SECONDS:g} s")
    return CliError(f"the coordinator at {address} rejected the call: {detail} ({error.code().name})")


def _is_unreachable(detail: str) -> bool:
    marks = ("failed to connect", "Connection refused", "DNS resolution", "tcp handshaker")
    return any(mark in detail for mark in marks)


async def explain_gang(stub: "Stub", address: str, name: str) -> coordinator_pb2.ExplainResponse:
    """Explain, with suggestions when the name fits no gang or several. Raises CliError."""
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
    """The error for a gang that does not exist; suggests similar names."""
    short = {gang_id: gang_id.rpartition("/")[2] for gang_id in ids}
    gang_name = name.rpartition("/")[2]
    close = difflib.get_close_matches(gang_name, set(short.values()), n=_MAX_SUGGESTIONS, cutoff=0.5)
    similar = [gang_id for match in close for gang_id in ids if short[gang_id] == match][:_MAX_SUGGESTIONS]
    if similar:
        hint = "did you mean " + ", ".join(similar) + "?"
    else:
        hint = "`muster gangs` lists all gangs" if ids else "there are no gangs yet"
    return CliError(f"no gang is named {name!r}", hint=hint)
