"""The status of a QueueJob, and the controller's record of its decisions.

Every decision is written before it is carried out, so that the controller continues with the same decision after a
crash or a change of leader. The record is an annotation, because a CRD that others installed may prune unknown status
fields.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from muster.kube.objects import UNREADABLE

RECORD: Final = "muster.dev/queue-job-record"
"""Annotation of a QueueJob with the controller's decisions."""
PODS_CREATED: Final = "PodsCreated"
"""Condition type: whether all pods of a QueueJob could be created."""


class Obstacle(Struct, frozen=True):
    """Why pods of a QueueJob are not created: a reason for machines, a message for users."""

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
    """The status of a job and the decisions about it.

    `incarnation` counts from 1 and increases when all pods are recreated; pods of earlier incarnations are deleted.
    `templates` is the digest of the pod templates. `started`: the needed number of pods had nodes. `completed` is the
    number of pods that succeeded once all had. `replacing` are uids of failed pods to delete and recreate; `replaced`
    counts all replaced pods, these included. `attempts` and `last_attempt_seconds` (since 1970) determine the backoff.
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
    def fields(self) -> dict[str, Any]:
        """The status fields of the object."""
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
        """Encodes the decisions for the annotation of the job with this uid."""
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
    """The record. `job` distinguishes a job from a copy with the same annotations."""

    job: str
    incarnation: int
    templates: str
    started: bool
    completed: int
    replaced: int
    replacing: tuple[str, ...]
    attempts: int
    last_attempt_seconds: int


class _StatusFields(Struct, rename="camel", frozen=True):
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    min_available: int = 0
    conditions: tuple[Condition, ...] = ()


def read_status(raw: Raw, record: str, job: str) -> JobStatus:
    """Reads status and record of the job with this uid. Malformed ones count as absent."""
    content = bytes(raw)
    try:
        fields = msgspec.json.decode(content, type=_StatusFields) if content and content != b"null" else _StatusFields()
    except UNREADABLE:
        fields = _StatusFields()
    status = JobStatus(**asdict(fields))
    try:
        decided = msgspec.json.decode(record, type=_Record) if record else None
    except UNREADABLE:
        decided = None
    if decided is None or decided.job != job:
        return status
    return replace(status, **{name: value for name, value in asdict(decided).items() if name != "job"})


def with_obstacle(status: JobStatus, obstacle: Obstacle | None, *, all_created: bool, now_text: str) -> JobStatus:
    """Returns the status with the condition PodsCreated. It does not change while pods are being created."""
    if obstacle is None and not all_created:
        return status
    condition = (
        Condition(PODS_CREATED, "True", "AllCreated")
        if obstacle is None
        else Condition(PODS_CREATED, "False", *_reason_and_message(obstacle))
    )
    before = next((each for each in status.conditions if each.type == PODS_CREATED), None)
    if before is not None:
        condition = replace(condition, last_transition_time=before.last_transition_time)
        if condition == before:
            return status
    if before is None or before.status != condition.status:
        condition = replace(condition, last_transition_time=now_text)
    others = tuple(each for each in status.conditions if each.type != PODS_CREATED)
    return replace(status, conditions=(*others, condition))


def _reason_and_message(obstacle: Obstacle) -> tuple[str, str]:
    return obstacle.reason, obstacle.message
