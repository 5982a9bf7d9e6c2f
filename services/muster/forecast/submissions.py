"""Submissions of a trace: gangs with equal members that run for a known time once they have started.

A trace is a file of JSON lines, or a CSV file with a header. Fields:

    time        seconds since the begin of the trace
    gang        name, unique in the trace; optional "namespace/" before it
    members     number of pods, at least 1
    requests    of each member: "cpu=4,memory=32Gi,nvidia.com/gpu=8"; in JSON also an object
    duration    seconds from its start to its end
    priority    optional; 0
    topology    optional; as muster.dev/topology, e.g. "rack: hard pack"
    minimum     optional; members that must start together; all
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.gangs.facts import PODS, Amounts, LevelConstraint
from muster.gangs.quantity import BadQuantity, to_amount
from muster.gangs.quoting import MAX_LENGTH, printable, quoted
from muster.topology.constraints import BadConstraints, parse_constraints

MAX_MEMBERS: Final = 100_000
CPU: Final = "cpu"
_REQUIRED: Final = ("time", "gang", "members", "requests", "duration")
_OPTIONAL: Final = ("priority", "topology", "minimum")
_PRIORITIES: Final = range(-(2**31), 2**31)
_DEFAULT_NAMESPACE: Final = "default"


class BadTrace(ValueError):
    """A line of a trace cannot be read. The message names the line, quotes the value and says what is expected."""


class Submission(Struct, frozen=True):
    """A gang that is submitted at `at_seconds` and ends `duration_seconds` after its start."""

    at_seconds: float
    namespace: str
    name: str
    members: int
    requests: Amounts
    duration_seconds: float
    priority: int = 0
    topology: str = ""
    minimum: int = 0
    """0: all members."""

    @property
    def constraints(self) -> tuple[LevelConstraint, ...]:
        """The topology constraints."""
        return parse_constraints(self.topology) if self.topology else ()

    @property
    def id(self) -> str:
        """Unique among those of a trace."""
        return f"{self.namespace}/{self.name}"


def read_trace(path: Path) -> list[Submission]:
    """The submissions of a file in the order of their times. Raises BadTrace; OSError if it cannot be read."""
    rows = _csv_rows(path) if path.suffix == ".csv" else _json_rows(path)
    found: list[Submission] = []
    seen: set[str] = set()
    for line, row in rows:
        try:
            submission = _submission(row)
        except ValueError as error:
            raise BadTrace(f"{path}, line {line}: {error}") from None
        if submission.id in seen:
            raise BadTrace(f"{path}, line {line}: gang {quoted(submission.id)} was submitted before; use another name")
        seen.add(submission.id)
        found.append(submission)
    return sorted(found, key=lambda each: each.at_seconds)


def as_row(submission: Submission) -> dict[str, Any]:
    """A submission as a line of a trace, without the fields that have their defaults."""
    row = {
        "time": round(submission.at_seconds, 3),
        "gang": submission.id,
        "members": submission.members,
        "requests": {name: _quantity(name, amount) for name, amount in submission.requests if name != PODS},
        "duration": round(submission.duration_seconds, 3),
        "priority": submission.priority,
        "topology": submission.topology,
        "minimum": submission.minimum,
    }
    return {field: value for field, value in row.items() if value or field in _REQUIRED}


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU else str(amount)


def parse_requests(text: object) -> Amounts:
    """Requests of a pod from "cpu=4,memory=32Gi" or an object, one pod included. Raises ValueError."""
    if isinstance(text, Mapping):
        pairs = [(str(name), str(amount)) for name, amount in text.items()]
    elif isinstance(text, str):
        pairs = [_pair(each) for each in text.split(",") if each.strip()]
    else:
        raise ValueError(f'requests {_shown(text)}: write e.g. "cpu=4,memory=32Gi,nvidia.com/gpu=8"')
    try:
        amounts = {name: to_amount(name, amount, round_up=True) for name, amount in pairs}
    except BadQuantity as error:
        raise ValueError(f"requests {_shown(text)}: {error}") from None
    return tuple(sorted({**amounts, PODS: 1}.items()))


def _pair(text: str) -> tuple[str, str]:
    name, equals, amount = text.partition("=")
    if not equals or not name.strip() or not amount.strip():
        raise ValueError(f'requests: {quoted(text)} is not NAME=AMOUNT, e.g. "cpu=4"')
    return name.strip(), amount.strip()


def _csv_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            yield reader.line_num, {key: value for key, value in row.items() if key is not None and value}


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    decode = msgspec.json.Decoder().decode
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = decode(line)
            except msgspec.DecodeError as error:
                raise BadTrace(f"{path}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise BadTrace(f"{path}, line {number}: {_shown(row)} is not a JSON object")
            yield number, row


def _submission(row: Mapping[str, Any]) -> Submission:
    """Raises ValueError."""
    if missing := [field for field in _REQUIRED if field not in row]:
        raise ValueError(f"no field {', '.join(missing)}")
    if unknown := sorted(row.keys() - {*_REQUIRED, *_OPTIONAL}):
        raise ValueError(f"unknown field {quoted(unknown[0])}; fields are {', '.join((*_REQUIRED, *_OPTIONAL))}")
    namespace, slash, name = str(row["gang"]).rpartition("/")
    if not name or (slash and not namespace):
        raise ValueError(f"gang {_shown(row['gang'])} is not NAME or NAMESPACE/NAME")
    members = _integer(row, "members", range(1, MAX_MEMBERS + 1))
    topology = str(row.get("topology") or "")
    try:
        if topology:
            parse_constraints(topology)
    except BadConstraints as error:
        raise ValueError(f"topology {error}") from None
    return Submission(
        at_seconds=_seconds(row, "time"),
        namespace=namespace or _DEFAULT_NAMESPACE,
        name=name,
        members=members,
        requests=parse_requests(row["requests"]),
        duration_seconds=max(1.0, _seconds(row, "duration")),
        priority=_integer(row, "priority", _PRIORITIES),
        topology=topology,
        minimum=_integer(row, "minimum", range(members + 1)),
    )


def _seconds(row: Mapping[str, Any], field: str) -> float:
    try:
        seconds = float(row[field])
    except (TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{field} {_shown(row[field])} is not a number of seconds")
    return seconds


def _integer(row: Mapping[str, Any], field: str, allowed: range) -> int:
    value = row.get(field, 0)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = allowed.stop
    if number not in allowed:
        raise ValueError(f"{field} {_shown(value)} is not a whole number from {allowed.start} to {allowed.stop - 1}")
    return number


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else printable(msgspec.json.encode(value).decode())[:MAX_LENGTH]


def span(submissions: Iterable[Submission]) -> float:
    """Time of the last submission."""
    return max((each.at_seconds for each in submissions), default=0.0)
