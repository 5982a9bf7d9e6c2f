"""Scheduling settings of an operator."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Times after which the coordinator acts for pending or incomplete gangs."""

    starvation_after_seconds: float = 30.0
    """The head of the queue gets a backfill reservation when it had no place for this long."""
    repair_timeout_seconds: float = 300.0
    """A started gang below its minimum that cannot be completed for this long follows its repair policy."""
    deadlock_after_seconds: float = 1.0
    """Gangs that hold reservations may block each other for this long before one of them must release its own."""
