"""Description of a scenario, which is written once for every kind of workload."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from interop.sandbox import Sandbox
from interop.workload_kind import WorkloadKind


@dataclass(frozen=True)
class Scenario:
    """One row of the table."""

    name: str
    run: Callable[[Sandbox], Awaitable[None]]
    applies: Callable[[WorkloadKind], object] = lambda kind: True
    """Whether a kind of workload can do this at all."""
    blank_for: str = ""
    """The workloads to which it does not apply, and why, as Markdown."""
    whole_within_seconds: float = 10.0
    """A gang must reach its minimum this long after its first bind."""
