"""A call that a case rejects, as a JSON file: the cluster as it was streamed, the request, the answer, and what was
expected.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.conformance.case import Expected
from muster.placement.v1 import placement_pb2 as pb

MAX_BYTES: Final = 64 * 1024 * 1024
_VERSION: Final = 1


class BadFile(ValueError):
    """A file that is not one of a failed call. The message names it."""


@dataclass(frozen=True)
class Call:
    """One call of Solve: all messages of the cluster's stream before it, and its answer or its error."""

    cluster: tuple[state_pb.WatchResponse, ...]
    request: pb.SolveRequest
    response: pb.SolveResponse | None
    error: str = ""


@dataclass(frozen=True)
class FailedCall:
    """A call and why the case failed. `expected`: None if every safe answer is right."""

    case: str
    problem: str
    call: Call
    expected: Expected | None = None


def write(failed: FailedCall, implementation: str, path: Path) -> None:
    """Write a file; one that exists is replaced. Raises OSError."""
    call = failed.call
    content = {
        "version": _VERSION,
        "case": failed.case,
        "implementation": implementation,
        "problem": failed.problem,
        "expected": None if failed.expected is None else failed.expected._asdict(),
        "cluster": [_as_dict(each) for each in call.cluster],
        "request": _as_dict(call.request),
        "response": None if call.response is None else _as_dict(call.response),
        "error": call.error,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def read(path: Path) -> FailedCall:
    """Read a file. Raises OSError, BadFile."""
    if path.stat().st_size > MAX_BYTES:
        raise BadFile(f"{path} is larger than {MAX_BYTES} bytes")
    try:
        content = json.loads(path.read_text())
        if content["version"] != _VERSION:
            raise BadFile(f"{path} has version {content['version']!r}, not {_VERSION}: another Muster wrote it")
        response, expected = content["response"], content["expected"]
        call = Call(
            _messages(content["cluster"]),
            ParseDict(content["request"], pb.SolveRequest()),
            None if response is None else ParseDict(response, pb.SolveResponse()),
            content["error"],
        )
        return FailedCall(content["case"], content["problem"], call, None if expected is None else Expected(**expected))
    except (KeyError, TypeError, RecursionError, ParseError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadFile(f"{path} is not a file of `muster conformance placement`: {error!r}") from error


def _messages(listed: Sequence[Any]) -> tuple[state_pb.WatchResponse, ...]:
    return tuple(ParseDict(each, state_pb.WatchResponse()) for each in listed)


def _as_dict(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)
