"""What a case is: a sentence that says what is asked, and a play that finds out whether it is so."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from muster.placement.v1 import placement_pb2 as pb

if TYPE_CHECKING:
    from muster.conformance.trial import Trial

Play = Callable[["Trial"], Awaitable[None]]


class Group(StrEnum):
    """What a case is about; ids begin with the letter of their group."""

    SAFETY = "safety"
    COMPLETENESS = "completeness"
    TOPOLOGY = "topology"
    DETERMINISM = "determinism"
    DEADLINES = "deadlines"
    REVISIONS = "revisions"
    BAD_INPUT = "bad-input"
    EXPLANATIONS = "explanations"


LETTERS = dict(zip("SCTDLRBE", Group, strict=True))


class Feature(StrEnum):
    """What implementations may leave out, by the names that DescribeResponse.features has for it."""

    PARTIAL = "partial"
    PREEMPTION = "preemption"
    CONSTRAINTS = "constraints"
    POD_TOPOLOGY = "pod-topology"


FEATURES = {
    pb.FEATURE_PARTIAL: Feature.PARTIAL,
    pb.FEATURE_PREEMPTION: Feature.PREEMPTION,
    pb.FEATURE_CONSTRAINTS: Feature.CONSTRAINTS,
    pb.FEATURE_POD_TOPOLOGY: Feature.POD_TOPOLOGY,
}


class Failed(Exception):
    """The implementation does not do what the case asks; the message says what it did instead."""


class Unsafe(Failed):
    """An answer that would do harm if it were believed: whatever the case asks, this is never right."""


@dataclass(frozen=True)
class Case:
    """`needs`: the case is left out for implementations without these. `random`: its worlds differ anyhow, so once in
    any order is enough.
    """

    id: str
    asks: str
    play: Play
    needs: tuple[Feature, ...] = ()
    random: bool = False

    @property
    def group(self) -> Group:
        return LETTERS[self.id[0]]


class Cases(list[Case]):
    """The cases of one module, in order."""

    def case(self, id: str, asks: str, *needs: Feature, random: bool = False) -> Callable[[Play], Play]:  # noqa: A002
        """Make a function a case."""

        def add(play: Play) -> Play:
            self.append(Case(id, asks, play, needs, random))
            return play

        return add
