"""How far single pods are: from a reservation to a bound pod, and from a bound pod to an evicted one."""

from dataclasses import dataclass
from enum import Enum, auto

from muster.coordinator.core.events import PodName, Seat


class SeatState(Enum):
    """How far a seat is on its way to a bound pod."""

    DECIDED = auto()
    """Reserved; the permit is not known to be durable."""
    SENT = auto()
    """Handed to binding."""
    RETRY = auto()
    """Binding failed; it is sent again when the time comes."""


@dataclass(slots=True, eq=False)
class HeldSeat:
    """A reservation and how far it is."""

    seat: Seat
    state: SeatState = SeatState.DECIDED
    repairs: bool = False
    """The member had a permitted seat before, and lost it."""
    failures: int = 0
    retry_at: float = 0.0


@dataclass(slots=True, eq=False)
class LeavingPod:
    """A pod that is to be evicted, and how far that is."""

    pod: PodName
    state: SeatState = SeatState.DECIDED
    failures: int = 0
    retry_at: float = 0.0
