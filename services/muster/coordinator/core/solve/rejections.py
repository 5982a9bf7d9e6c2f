"""Rejections of placement answers: reasons, messages and counts."""

from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from muster.coordinator.core.effects import AnswerRejected
from muster.coordinator.core.gang.group import Group


class RejectionReason(StrEnum):
    """Reasons of rejections; the values are labels of a metric."""

    UNDECODABLE = "undecodable response"
    MISSING = "missing from the response"
    MALFORMED = "does not match the request"
    INCOMPLETE = "below the minimum"
    UNKNOWN = "unknown node or pod class"
    FILTERED = "node rejected by a filter"
    INSUFFICIENT_CAPACITY = "insufficient free capacity"
    INVALID_VICTIMS = "invalid victims"
    CONSTRAINT = "hard constraint violated"
    CONFLICT = "capacity taken by a concurrent solve"
    """No replica made a mistake."""


class Rejection(NamedTuple):
    """Why an answer, or a part of it, is rejected; `node` is the node that it concerns, if it concerns one."""

    reason: RejectionReason
    message: str
    node: str = ""


class Rejections:
    """Rejections of this term by reason, and rejections that are not reported yet."""

    def __init__(self) -> None:
        self.counts: Counter[RejectionReason] = Counter()
        self._reports: list[AnswerRejected] = []

    def add(self, group: Group, rejection: Rejection) -> None:
        self.counts[rejection.reason] += 1
        for gang in group.gangs:
            gang.attempts.reject(rejection.reason)
        if group.gangs:
            count = self.counts[rejection.reason]
            self._reports.append(AnswerRejected(group.gangs[0].id, rejection.reason, rejection.message, count))

    def take_reports(self) -> list[AnswerRejected]:
        """Rejections since the last call."""
        reports, self._reports = self._reports, []
        return reports
