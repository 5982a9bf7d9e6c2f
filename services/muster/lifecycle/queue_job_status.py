"""The status of a QueueJob: what users are told of it, and what its controller has to remember of it.

Everything that the controller decides is written here before it is carried out, so that whoever looks next, after a
crash or as the next leader, goes on with the same decision.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from muster.kube.objects import UNREADABLE

MADE: Final = "PodsMade"
"""Type of the condition that tells whether all pods of a QueueJob could be made."""


class Obstacle(Struct, frozen=True):
    """Why pods of a QueueJob are not made: a word for machines, a sentence for people."""

    reason: str
    message: str


class Condition(Struct, rename="camel", frozen=True):
    """A metav1.Condition."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class JobStatus(Struct, rename="camel", frozen=True):
    """`incarnation` counts how often all pods were made anew, from 1; pods of former ones have to go. `templates` is
    the digest of what they are made from. `started`: as many as needed had a node. `replacing` are uids of failed
    pods that are to be deleted and made anew, `replaced` counts those that were, the former included. `attempts` and
    `last_attempt_seconds` (since 1970) are what pauses between such steps follow from.
    """

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    min_available: int = 0
    incarnation: int = 0
    templates: str = ""
    started: bool = False
    completed: bool = False
    replaced: int = 0
    replacing: tuple[str, ...] = ()
    attempts: int = 0
    last_attempt_seconds: int = 0
    conditions: tuple[Condition, ...] = ()


EMPTY: Final = JobStatus()


def read_status(raw: Raw) -> JobStatus:
    """As it was written; one that somebody has made unreadable counts as none."""
    content = bytes(raw)
    try:
        return msgspec.json.decode(content, type=JobStatus) if content and content != b"null" else EMPTY
    except UNREADABLE:
        return EMPTY


def with_obstacle(status: JobStatus, obstacle: Obstacle | None, *, all_made: bool, now_text: str) -> JobStatus:
    """The status with what there is to say of pods that are missing. While some are being made nothing new is said."""
    if obstacle is None and not all_made:
        return status
    said = Condition(MADE, "True", "AllMade") if obstacle is None else Condition(MADE, "False", *_words(obstacle))
    before = next((each for each in status.conditions if each.type == MADE), None)
    if before is not None:
        said = replace(said, last_transition_time=before.last_transition_time)
        if said == before:
            return status
    if before is None or before.status != said.status:
        said = replace(said, last_transition_time=now_text)
    others = tuple(each for each in status.conditions if each.type != MADE)
    return replace(status, conditions=(*others, said))


def _words(obstacle: Obstacle) -> tuple[str, str]:
    return obstacle.reason, obstacle.message
