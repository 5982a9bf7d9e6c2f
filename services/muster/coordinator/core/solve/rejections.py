"""Why an answer of placement is not taken: counted by reason, told in words."""

from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from muster.coordinator.core.effects import AnswerRejected
from muster.coordinator.core.gang.group import Group


class RejectionReason(StrEnum):
    """Reasons as they are counted."""

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
    """Of solves that were under way at the same time: nobody did anything wrong."""


class Rejection(NamedTuple):
    """Why an answer, or a part of it, is not taken; `node` is the one it is about, if it is about one."""

    reason: RejectionReason
    message: str
    node: str = ""


class Rejections:
    """Answers that were not taken, counted over the term, and those that are to be told."""

    def __init__(self) -> None:
        self.counts: Counter[RejectionReason] = Counter()
        self._reports: list[AnswerRejected] = []

    def add(self, group: Group, refusal: Rejection) -> None:
        """One more."""
        self.counts[refusal.reason] += 1
        for gang in group.gangs:
            gang.attempts.reject(refusal.reason)
        if group.gangs:
            count = self.counts[refusal.reason]
            self._reports.append(AnswerRejected(group.gangs[0].id, refusal.reason, refusal.message, count))

    def take_reports(self) -> list[AnswerRejected]:
        """Those since this was asked before."""
        reports, self._reports = self._reports, []
        return reports
