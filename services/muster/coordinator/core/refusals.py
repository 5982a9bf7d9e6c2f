"""Why an answer of placement is not taken: counted by reason, told in words."""

from enum import StrEnum
from typing import NamedTuple


class RefusalReason(StrEnum):
    """Reasons as they are counted."""

    SILENCE = "no answer for the gang"
    MALFORMED = "not what was asked"
    INCOMPLETE = "fewer than must start together"
    UNKNOWN = "unknown node or class"
    UNFIT = "a node that does not take such pods"
    NO_ROOM = "no room"
    CONSTRAINT = "a hard constraint does not hold"
    OVERTAKEN = "room taken since by another answer"
    """Of solves that were under way at the same time: nobody did anything wrong."""


class Refusal(NamedTuple):
    """Why an answer, or a part of it, is not taken; `node` is the one it is about, if it is about one."""

    reason: RefusalReason
    message: str
    node: str = ""
