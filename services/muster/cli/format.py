"""Formats of gangs, durations and amounts for all commands."""

import time
from datetime import UTC, datetime
from typing import Any

from muster.coordinator.v1.coordinator_pb2 import Gang, Phase

_COLOURS = {
    Phase.PHASE_GATHERING: "yellow",
    Phase.PHASE_QUEUED: "yellow",
    Phase.PHASE_SOLVING: "cyan",
    Phase.PHASE_WAITING: "yellow",
    Phase.PHASE_PERMITTED: "cyan",
    Phase.PHASE_BINDING: "cyan",
    Phase.PHASE_SATISFIED: "green",
    Phase.PHASE_REPAIRING: "magenta",
    Phase.PHASE_TIMED_OUT: "red",
    Phase.PHASE_ENDED: "dim",
}


def phase_word(phase: Phase.ValueType) -> str:
    """Phase as in all output: "queued", "timed-out", ..."""
    return Phase.Name(phase).removeprefix("PHASE_").lower().replace("_", "-")


def phase_markup(phase: Phase.ValueType) -> str:
    """`phase_word` in its colour, as rich markup."""
    return f"[{_COLOURS.get(phase, 'white')}]{phase_word(phase)}[/]"


def duration(seconds: float) -> str:
    """Three significant digits: "412 us", "3.21 ms", "1.52 s", "4 min 05 s"."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        milliseconds = seconds * 1e3
        return f"{milliseconds:.2f} ms" if milliseconds < 10 else f"{milliseconds:.1f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


def local_time(unix_millis: int) -> str:
    """Local time of day and the time until then: "14:05:00 (in 4 min 05 s)"."""
    seconds = unix_millis / 1000 - time.time()
    at = datetime.fromtimestamp(unix_millis / 1000, UTC).astimezone().strftime("%H:%M:%S")
    return f"{at} (in {duration(seconds)})" if seconds > 0 else at


def bound_of_members(bound: int, members: int) -> str:
    """Bound pods of all members: "3/8"."""
    return f"{bound}/{members}"


def brief_reason(gang: Gang) -> str:
    """The reason without the gang's name, for tables that have a column for it."""
    name = f"gang {gang.namespace}/{gang.name} "
    return gang.reason.removeprefix(f"{name}cannot start: ").removeprefix(f"{name}is pending: ")


def amount(resource: str, number: int) -> str:
    """Amount of a resource: cpu in cores ("1.5"), memory and storage with a unit ("12.5Gi"), others unchanged."""
    if resource == "cpu":
        return f"{number / 1000:g}" if abs(number) < 10_000_000 else f"{number / 1000:.0f}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for shift, unit in ((50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
            if abs(number) >= 1 << shift:
                return f"{number / (1 << shift):.1f}".removesuffix(".0") + unit
    return str(number)


def gang_as_json(gang: Gang) -> dict[str, Any]:
    """For --output json: the message Gang with phases as words and absent numbers as null."""
    return {
        "id": gang.id,
        "dialect": gang.dialect,
        "namespace": gang.namespace,
        "name": gang.name,
        "phase": phase_word(gang.phase),
        "minimum": gang.minimum,
        "members": gang.members,
        "bound": gang.bound,
        "reason": gang.reason,
        "priority": gang.priority,
        "created_seconds": gang.created_seconds,
        "start_seconds": round(gang.start_seconds, 6) if gang.HasField("start_seconds") else None,
        "schedule_cycle": gang.schedule_cycle,
        "trace_id": gang.trace_id or None,
        "terms": list(gang.terms),
    }
