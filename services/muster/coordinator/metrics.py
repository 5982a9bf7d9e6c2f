"""Metrics of scheduling.

Names are those of kube-scheduler where it has the metric. Its counts of pods are counts of gang groups here, which are
what is attempted, or of gangs, which are what starts.
"""

from collections import Counter
from typing import Final

from muster.coordinator.core.effects import CLAIM_ENDS, AnswerRejected, ClaimEnded, RejectionReason, Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.gangs.solve import SolveOutcome
from muster.telemetry.metrics import CALL_BUCKETS, WAIT_BUCKETS, counter, histogram, sampled

PROFILE: Final = "muster"
SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
_CONFLICTS: Final = (RejectionReason.INSUFFICIENT_CAPACITY, RejectionReason.CONFLICT)
_VICTIM_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

ATTEMPTS: Final = counter(
    "scheduler_schedule_attempts_total",
    "Attempts to place a gang group by placement's answer: scheduled (placed), unschedulable (infeasible, or no "
    "solution found in time) or error (no answer).",
    ("result", "profile"),
    known=[(result, PROFILE) for result in (SCHEDULED, UNSCHEDULABLE, ERROR)],
)
ATTEMPT_SECONDS: Final = histogram(
    "scheduler_scheduling_attempt_duration_seconds",
    "Duration of an attempt, from the solve request to its response; every group of a batch counts.",
    CALL_BUCKETS,
    ("result", "profile"),
)
SLI_SECONDS: Final = histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Time to start a gang, from when it could be attempted until all pods that must start are bound, by the number of "
    "attempts. Time in which members were missing is not included.",
    WAIT_BUCKETS,
    ("attempts",),
)
START_SECONDS: Final = histogram(
    "muster_gang_start_duration_seconds",
    "Time to start a gang, from its first pod until all pods that must start are bound.",
    WAIT_BUCKETS,
)
PHASE_SECONDS: Final = histogram(
    "muster_gang_phase_duration_seconds",
    "Time that a gang spent in a phase, observed when the phase ends.",
    WAIT_BUCKETS,
    ("phase",),
)
GANGS: Final = sampled("muster_gangs", "Gangs by phase.", ("phase",))
PENDING: Final = sampled(
    "scheduler_pending_pods",
    "Pending pods: active (next to be attempted, or being attempted), backoff (attempted again at a set time), "
    "unschedulable (attempted again when the cluster changes) or gated (members are missing, the declaration is "
    "invalid, or the gang timed out).",
    ("queue",),
)
PREEMPTION_ATTEMPTS: Final = counter(
    "scheduler_preemption_attempts_total", "Gang groups for which placement was asked for victims."
)
PREEMPTION_VICTIMS: Final = histogram(
    "scheduler_preemption_victims", "Pods evicted together for one gang group.", _VICTIM_BUCKETS
)
REJECTED: Final = counter(
    "muster_placements_rejected_total",
    "Placements of gang groups that the coordinator's validation rejected, by reason.",
    ("reason",),
    known=[(reason.name.lower(),) for reason in RejectionReason],
)
CLAIMS_ENDED: Final = counter(
    "muster_capacity_claims_ended_total",
    "Claims on capacity that ended without a start: nomination (victims_remain: evicted pods did not end in time, or "
    "capacity_taken: others took what was freed), reservation of a starving group (expired: the pods that should have "
    "ended did not in time, or overrun: they ran longer than they declare) or hold (timed_out: a NonStrict gang waited "
    "for as long as it may).",
    ("kind", "reason"),
    known=CLAIM_ENDS,
)
CONFLICTS: Final = counter(
    "muster_ledger_conflicts_total",
    "Placements that do not fit the ledger: insufficient_capacity (the placement is wrong) or conflict (another "
    "placement took the capacity first, as can happen with several replicas).",
    ("reason",),
    known=[(reason.name.lower(),) for reason in _CONFLICTS],
)
WATCH_LAG: Final = histogram(
    "muster_watch_lag_seconds",
    "Time from binding's response that a pod is bound until the bound pod arrives through the API server and "
    "cluster-state; measured for one pod of each response.",
    CALL_BUCKETS,
)
TERMS: Final = counter("muster_leader_terms_total", "Terms of leadership that this replica began.")
RECORDS_PENDING: Final = sampled("muster_record_writes_pending", "Decisions that are not written to etcd yet.")


def solve_ended(effect: Solve, answer: Solved | SolveFailed, seconds: float, traceparent: str) -> None:
    """Counts the groups of a batch by placement's answer."""
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


def claim_ended(claim: ClaimEnded) -> None:
    """Counts a claim on capacity that ended without a start."""
    CLAIMS_ENDED.labels(claim.kind, claim.reason).add()


def placement_rejected(answer: AnswerRejected) -> None:
    """Counts a placement that validation rejected."""
    reason = RejectionReason(answer.reason)
    REJECTED.labels(reason.name.lower()).add()
    if reason in _CONFLICTS:
        CONFLICTS.labels(reason.name.lower()).add()
