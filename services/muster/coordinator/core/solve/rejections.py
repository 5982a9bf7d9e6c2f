"""Rejections of placement answers: reasons, messages and counts."""

from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from muster.coordinator.core.effects import AnswerRejected
from muster.coordinator.core.gang.group import Group


class RejectionReason(StrEnum):
    """Reasons of rejections; the values are labels of a metric."""

    UNREADABLE = "no answer that can be read"
    SILENCE = "no answer for the gang"
    MALFORMED = "not what was asked"
    INCOMPLETE = "fewer than must start together"
    UNKNOWN = "unknown node or class"
    UNFIT = "a node that does not take such pods"
    NO_ROOM = "no room"
    REMOVAL = "pods to make room that were not offered, or do not suffice"
    CONSTRAINT = "a hard constraint does not hold"
    OVERTAKEN = "room taken since by another answer"
    """By a concurrent solve: no replica made a mistake."""


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
