"""Metrics of scheduling: declared here, and counted of what the core takes in and wants done.

Names are kube-scheduler's where it has them; what it counts of pods is counted of gang groups here, since those are
what is tried, and of gangs, since those are what starts.
"""

from collections import Counter
from typing import Final

from muster.coordinator.core.effects import AnswerRejected, Solve
from muster.coordinator.core.events import Solved, SolveFailed, SolveOutcome
from muster.coordinator.core.solve.rejections import RejectionReason
from muster.telemetry.metrics import CALL_BUCKETS, WAIT_BUCKETS, counter, histogram, sampled

PROFILE: Final = "muster"
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
_CONFLICTS: Final = (RejectionReason.NO_ROOM, RejectionReason.OVERTAKEN)
_VICTIM_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

ATTEMPTS: Final = counter(
    "scheduler_schedule_attempts_total",
    "Tries of gang groups by what placement said: scheduled (there is a place), unschedulable (there is none, or none "
    "was found) or error (no answer).",
    ("result", "profile"),
    known=[(result, PROFILE) for result in (SCHEDULED, UNSCHEDULABLE, ERROR)],
)
ATTEMPT_SECONDS: Final = histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "How long a try took, from the question to placement to its answer; groups that are asked for together count each.",
    CALL_BUCKETS,
    ("result", "profile"),
)
SLI_SECONDS: Final = histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "How long gangs took to start, from when they could be tried to when all that must start is bound, by the number "
    "of tries. Time in which members were missing is not in it.",
    WAIT_BUCKETS,
    ("attempts",),
)
START_SECONDS: Final = histogram(
    "muster_gang_start_duration_seconds",
    "How long gangs took to start, from when they were first seen to when all that must start is bound.",
    WAIT_BUCKETS,
)
PHASE_SECONDS: Final = histogram(
    "muster_gang_phase_duration_seconds", "How long gangs were in a phase, when it ends.", WAIT_BUCKETS, ("phase",)
)
GANGS: Final = sampled("muster_gangs", "Gangs by the phase that they are in.", ("phase",))
PENDING: Final = sampled(
    "scheduler_pending_pods",
    "Pods that want a place: active (to be tried now, or being tried), backoff (again at a time), unschedulable (when "
    "something helps) or gated (members are missing, the declaration is wrong, or the gang waited too long).",
    ("queue",),
)
PREEMPTION_ATTEMPTS: Final = counter(
    "scheduler_preemption_attempts_total", "Times that placement was asked who could make room for somebody."
)
PREEMPTION_VICTIMS: Final = histogram(
    "scheduler_preemption_victims", "Pods that are evicted for a gang group at once.", _VICTIM_BUCKETS
)
REJECTED: Final = counter(
    "muster_placement_answers_rejected_total",
    "Answers of placement about a group that were not taken, by what the check found.",
    ("reason",),
    known=[(reason.name.lower(),) for reason in RejectionReason],
)
CONFLICTS: Final = counter(
    "muster_ledger_conflicts_total",
    "Answers that the ledger has no room for: no_room (they were wrong) or overtaken (another answer took it first, as "
    "may be with several replicas).",
    ("reason",),
    known=[(reason.name.lower(),) for reason in _CONFLICTS],
)
WATCH_LAG: Final = histogram(
    "muster_watch_lag_seconds",
    "How long it took from binding's word that a pod is bound to the sight of it by way of API server and "
    "cluster-state; of pods that binding tells of together one is measured.",
    CALL_BUCKETS,
)
TERMS: Final = counter("muster_terms_total", "Terms of leadership that this replica began.")
RECORDS_WAITING: Final = sampled("muster_record_writes_waiting", "Decisions that wait to be written to etcd.")


def answered(effect: Solve, answer: Solved | SolveFailed, seconds: float, traceparent: str) -> None:
    """Placement was asked, and said something or nothing."""
    if effect.potential_victims:
        PREEMPTION_ATTEMPTS.add(len(effect.groups))
        return
    outcomes: Counter[str] = Counter()
    if isinstance(answer, Solved):
        placed = sum(result.outcome is SolveOutcome.PLACED for result in answer.results)
        outcomes[SCHEDULED], outcomes[UNSCHEDULABLE] = placed, len(answer.results) - placed
    outcomes[ERROR] = max(0, len(effect.groups) - outcomes.total())
    for result, groups in outcomes.items():
        if groups:
            ATTEMPTS.labels(result, PROFILE).add(groups)
            ATTEMPT_SECONDS.labels(result, PROFILE).observe(seconds, traceparent, groups)


def rejected(answer: AnswerRejected) -> None:
    """An answer was not taken."""
    reason = RejectionReason(answer.reason)
    REJECTED.labels(reason.name.lower()).add()
    if reason in _CONFLICTS:
        CONFLICTS.labels(reason.name.lower()).add()
