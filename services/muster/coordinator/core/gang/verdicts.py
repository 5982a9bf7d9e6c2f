"""What was concluded about a group that has no place, in sentences for its reason: at most one of each kind."""

from enum import Enum, auto
from typing import Final

from msgspec import Struct


class Verdict(Enum):
    """Kinds of verdicts, in the order in which they are reported. Each is found at a time of its own."""

    HOLD_LIMIT = auto()
    """Why the group may not hold all that placement found for it."""
    PREEMPTION = auto()
    """Why nothing is evicted for the group."""
    RESERVATION = auto()
    """Why no capacity is reserved for the group until running pods have ended."""


_ORDER: Final = tuple(Verdict)


class Verdicts(Struct, gc=False):
    """The last verdict of each kind. One kind does not replace another: the reason, and with it the conditions of all
    members, would alternate between them (I10).
    """

    sentences: dict[Verdict, str] = {}

    def conclude(self, kind: Verdict, sentence: str) -> None:
        """Replace the verdict of this kind; with an empty sentence there is none any more."""
        others = {each: said for each, said in self.sentences.items() if each is not kind}
        said = {**others, kind: sentence} if sentence else others
        self.sentences = {each: said[each] for each in _ORDER if each in said}

    def forget(self) -> None:
        """The group has a place, or a new explanation, with which the verdicts may not hold any more."""
        self.sentences = {}

    def __getitem__(self, kind: Verdict) -> str:
        """The verdict of this kind; empty if there is none."""
        return self.sentences.get(kind, "")
