"""Objects that cannot be read, or only in part: counted, and logged at a bounded rate."""

from collections.abc import Callable
from enum import StrEnum
from time import monotonic
from typing import Any, Final

import structlog
from msgspec import Struct

from muster.kube import metrics

_LOG_SECONDS: Final = 10.0  # between two log lines about one kind

_log = structlog.get_logger(__name__)


class Reason(StrEnum):
    """Why an object, or a part of it, is not used; a label of metrics."""

    NOT_AN_OBJECT = "not_an_object"
    IDENTITY = "identity"
    REVISION = "revision"
    FIELDS = "fields"
    REJECTED = "rejected"
    """The object was decoded, but its content made a computation fail: a defect of Muster."""
    ENCODING = "encoding"
    """What follows from the object does not fit the messages of the stream: a defect of Muster."""


class Unreadable(Struct, frozen=True):
    """An object that cannot be read. Empty uid, namespace or name: unknown."""

    reason: Reason
    message: str
    uid: str = ""
    namespace: str = ""
    name: str = ""


def rejected(item: Any, error: Exception) -> Unreadable:
    """An object, or the removal of one, for which a computation failed."""
    message = f"{type(error).__name__}: {error}"
    metadata = getattr(item, "metadata", None)
    if metadata is None:
        return Unreadable(Reason.REJECTED, message, getattr(item, "uid", ""))
    return Unreadable(Reason.REJECTED, message, metadata.uid, metadata.namespace, metadata.name)


class MalformedObjects:
    """Counts and logs the malformed objects of one kind: all are counted, one in 10 s is logged."""

    def __init__(self, kind: str, report: Callable[[Unreadable], None] | None = None) -> None:
        """`report` is called with each, too."""
        self._kind = kind
        self._report = report
        self._not_before = float("-inf")
        self._unlogged = 0

    def note(self, found: Unreadable, *, effect: str, error: BaseException | None = None) -> None:
        """Count an object, and log it with `effect`, what becomes of it."""
        metrics.MALFORMED.labels(self._kind, found.reason.value).add()
        if self._report is not None:
            self._report(found)
        now = monotonic()
        if now < self._not_before:
            self._unlogged += 1
            return
        _log.error(
            "object_malformed",
            kind=self._kind,
            object=f"{found.namespace}/{found.name}",
            uid=found.uid,
            reason=found.reason.value,
            message=found.message,
            effect=effect,
            not_logged_before=self._unlogged,
            exc_info=error,
        )
        self._not_before, self._unlogged = now + _LOG_SECONDS, 0
