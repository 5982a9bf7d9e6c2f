"""What an operator may set about when gangs start."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Times after which the coordinator does more than wait."""

    starvation_after_seconds: float = 30.0
    """The head of the queue gets room kept for it when it could not be placed for so long."""
    repair_timeout_seconds: float = 300.0
    """A started gang below its minimum that cannot be completed for so long goes by its repair policy."""
    deadlock_after_seconds: float = 1.0
    """So long waiting gangs may stand still before one of them is asked to give way."""
