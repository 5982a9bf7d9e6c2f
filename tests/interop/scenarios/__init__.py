"""The table of scenarios."""

from collections.abc import Awaitable, Callable
from typing import Final

from interop.sandbox import Sandbox
from interop.scenarios import basics, documented, explanations, failures, groups, jobs, restarts, rivals, sizes
from interop.scenarios.scenario import Scenario
from interop.workload_kind import WorkloadKind


def _starts_whole(kind: WorkloadKind) -> bool:
    return kind.starts_whole


def _restarts_whole(kind: WorkloadKind) -> bool:
    return kind.restarts and kind.starts_whole


def _scales(kind: WorkloadKind) -> bool:
    return kind.scaled is not None


def _of_one(name: str, run: Callable[[Sandbox], Awaitable[None]], kind: str) -> Scenario:
    """A scenario of a single kind of workload."""
    return Scenario(name, run, lambda each: each.name == kind, blank_for=f"all but {kind}")


_NOT_WHOLE: Final = "gangs that start pod by pod"
_NO_RESTART: Final = "the same, and pods without a controller"
_FIXED: Final = (
    "workloads with a fixed number of pods: JobSet, TrainJob, those in a queue, groups of a LeaderWorkerSet,"
    " SparkApplication"
)

WARM_UP: Final = Scenario("warm-up", basics.start_and_deletion)
"""Runs once with each controller, without a result."""

SCENARIOS: Final = (
    Scenario("first start", basics.first_start),
    Scenario("list of gangs", basics.reports),
    Scenario(
        "as in migration.md",
        documented.documented,
        lambda kind: kind.documented,
        blank_for="kinds of workloads of which the page shows another one of the same controller",
    ),
    Scenario("two gangs, room for one", rivals.two_gangs, _starts_whole, blank_for=_NOT_WHOLE),
    Scenario("five gangs, room for two", rivals.many_gangs, _starts_whole, blank_for=_NOT_WHOLE),
    Scenario(
        "completion",
        basics.completion,
        lambda kind: kind.finished,
        blank_for="workloads that never complete, and pods without a controller",
    ),
    Scenario("a member fails", failures.failed_member),
    Scenario("a node is lost", failures.lost_node),
    Scenario("restart", restarts.restart, lambda kind: kind.restarts, blank_for="pods without a controller"),
    Scenario("restart with a rival", restarts.restart_with_rival, _restarts_whole, blank_for=_NO_RESTART),
    Scenario(
        "restart while old pods terminate",
        restarts.restart_while_terminating,
        _restarts_whole,
        blank_for=_NO_RESTART,
    ),
    Scenario("restart without a coordinator", restarts.restart_unobserved, _restarts_whole, blank_for=_NO_RESTART),
    Scenario("restart with crashes", restarts.restart_with_crashes, _restarts_whole, blank_for=_NO_RESTART),
    Scenario(
        "explain",
        explanations.explained,
        lambda kind: kind.withheld,
        blank_for="workloads whose controller creates all pods at once, or none",
    ),
    Scenario("scale up and down", sizes.scale, _scales, blank_for=_FIXED),
    Scenario("shrinking to the minimum and growth", sizes.shrink, _scales, blank_for=_FIXED),
    Scenario("surplus on reserved capacity", sizes.lend, _scales, blank_for=_FIXED),
    Scenario("preemption and recovery", rivals.preemption, _starts_whole, blank_for=_NOT_WHOLE),
    Scenario("deletion", basics.deletion),
    Scenario("deletion without a coordinator", basics.deletion_unobserved),
    Scenario("controller and coordinator killed", failures.crashes, whole_within_seconds=60.0),
    _of_one("several groups", groups.leader_worker_groups, "LeaderWorkerSet"),
    _of_one("partitions in HyperNodes", groups.partitions, "Job of Volcano (vcjob)"),
    _of_one("preemption of a partition", groups.preempted_partition, "Job of Volcano (vcjob)"),
    _of_one("tasks with minima", groups.tasks_with_minima, "Job of Volcano (vcjob)"),
    _of_one("native gang, generated PodGroups", groups.beside_generated_groups, "Job of Volcano (vcjob)"),
    _of_one("two of three PodGroups", groups.composite, "Job, scheduling"),
    _of_one("a basic CompositePodGroup in a gang", groups.basic_composite, "Job, scheduling"),
    _of_one("racks assigned by Kueue", groups.assigned_racks, "Job in a queue"),
    _of_one("waitForPodsReady", groups.pods_not_ready, "Job in a queue"),
    _of_one("partial admission", groups.partial_admission, "Job in a queue"),
    _of_one("minCount changes", jobs.changes_minimum, "Job, scheduling"),
    _of_one("podFailurePolicy FailIndex", jobs.fails_by_index, "Job, Indexed"),
    _of_one("podFailurePolicy Count", jobs.counts_failures, "Job, Indexed"),
    _of_one("podFailurePolicy FailJob", jobs.fails_as_a_whole, "Job, Indexed"),
    _of_one("successPolicy", jobs.succeeds_by_policy, "Job, Indexed"),
)
