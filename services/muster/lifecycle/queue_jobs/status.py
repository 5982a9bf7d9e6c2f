"""The status of a QueueJob: what users are told of it, and what its controller has to remember of it.

Everything that the controller decides is written before it is carried out, so that whoever looks next, after a crash or
as the next leader, goes on with the same decision. That is in an annotation: a CRD that was installed by others may not
let the status have fields of ours.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from muster.kube.objects import UNREADABLE

RECORD: Final = "muster.dev/queue-job-record"
"""Annotation of a QueueJob with what was decided of it."""
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


class JobStatus(Struct, frozen=True):
    """How a job is, and what was decided of it.

    `incarnation` counts how often all pods were made anew, from 1; pods of former ones have to go. `templates` is the
    digest of what they are made from. `started`: as many as needed had a node. `completed`: so many succeeded when all
    had. `replacing` are uids of failed pods that are to be deleted and made anew, `replaced` counts those that were,
    the former included. `attempts` and `last_attempt_seconds` (since 1970) are what pauses between such steps follow
    from.
    """

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    min_available: int = 0
    incarnation: int = 0
    templates: str = ""
    started: bool = False
    completed: int = 0
    replaced: int = 0
    replacing: tuple[str, ...] = ()
    attempts: int = 0
    last_attempt_seconds: int = 0
    conditions: tuple[Condition, ...] = ()

    @property
    def shown(self) -> dict[str, Any]:
        """The status of the object."""
        return {
            "pending": self.pending,
            "running": self.running,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "minAvailable": self.min_available,
            "incarnation": self.incarnation,
            "started": self.started,
            "completed": self.completed > 0,
            "conditions": msgspec.to_builtins(self.conditions),
        }

    def record(self, job: str) -> str:
        """What was decided, of the job with this uid, for the annotation."""
        return msgspec.json.encode(
            _Record(
                job,
                self.incarnation,
                self.templates,
                self.started,
                self.completed,
                self.replaced,
                self.replacing,
                self.attempts,
                self.last_attempt_seconds,
            )
        ).decode()


class _Record(Struct, rename="camel", frozen=True):
    """`job` tells a job from a copy that has its annotations too."""

    job: str
    incarnation: int
    templates: str
    started: bool
    completed: int
    replaced: int
    replacing: tuple[str, ...]
    attempts: int
    last_attempt_seconds: int


class _Shown(Struct, rename="camel", frozen=True):
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    min_available: int = 0
    conditions: tuple[Condition, ...] = ()


def read_status(raw: Raw, record: str, job: str) -> JobStatus:
    """How the job with this uid is, by its status and its record. What cannot be read of them counts as not there."""
    content = bytes(raw)
    try:
        shown = msgspec.json.decode(content, type=_Shown) if content and content != b"null" else _Shown()
    except UNREADABLE:
        shown = _Shown()
    status = JobStatus(**asdict(shown))
    try:
        decided = msgspec.json.decode(record, type=_Record) if record else None
    except UNREADABLE:
        decided = None
    if decided is None or decided.job != job:
        return status
    return replace(status, **{name: value for name, value in asdict(decided).items() if name != "job"})


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
