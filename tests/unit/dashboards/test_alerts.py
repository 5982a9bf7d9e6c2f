"""Alerts, tested with promtool: silent on a healthy cluster, and each fires in its case; each has a runbook entry."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from builders.deploy.promtool import promtool
from builders.docs.metrics import ROOT

ALERTS = ROOT / "deploy" / "dashboards" / "alerts.yaml"
RUNBOOK = ROOT / "docs" / "alerts.md"
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]

Series = dict[str, str | None]
"""Values by series in promtool's notation, one per minute; None: the series is absent."""


def latencies(name: str, labels: str, *, slow: bool) -> Series:
    """A hundred observations per minute, all below 50 ms or all above 5 s."""
    fast = "0+0x60" if slow else "0+100x60"
    bounds = {"0.05": fast, "0.5": fast, "1": fast, "5": fast, "10": "0+100x60", "+Inf": "0+100x60"}
    return {f'{name}_bucket{{{labels}, le="{bound}"}}': values for bound, values in bounds.items()}


SERVICES = ("cluster-state", "coordinator", "placement", "binding", "lifecycle")
LEADER = 'muster_leader{job="coordinator", instance="a"}'
STANDBY = 'muster_leader{job="coordinator", instance="b"}'
TERMS = 'muster_leader_terms_total{job="coordinator", instance="a"}'
PLACED, NO_ANSWER = (
    f'scheduler_schedule_attempts_total{{job="coordinator", result="{result}"}}' for result in ("scheduled", "error")
)
FAILED_BINDS = 'muster_bind_errors_total{job="binding", reason="failed"}'
REPAIRING = 'muster_gangs{job="coordinator", phase="repairing"}'
THROTTLED = 'muster_write_retries_total{job="binding", reason="server_unavailable"}'
FORBIDDEN = 'rest_client_requests_total{job="binding", method="PATCH", code="403"}'
ETCD_FAILURES = 'muster_etcd_request_errors_total{job="coordinator", operation="health"}'
ETCD_SIZE = 'etcd_mvcc_db_total_size_in_bytes{job="etcd", instance="etcd-1"}'
VIEW = 'muster_cache_synced{job="placement", instance="a"}'
SILENCE = 'muster_watch_idle_seconds{job="cluster-state", instance="a", kind="pods"}'
IN_VAIN = 'muster_capacity_claims_ended_total{job="coordinator", kind="nomination", reason="capacity_taken"}'
WRONG = 'muster_placements_rejected_total{job="coordinator", reason="insufficient_capacity"}'
RETRIES = 'workqueue_retries_total{job="lifecycle", name="quota"}'
UNDECIDED = 'muster_quota_review_duration_seconds_count{job="lifecycle", code="503"}'
UNDECIDED_DEVICES = 'muster_device_review_duration_seconds_count{job="lifecycle", code="503"}'
CERTIFICATE = 'muster_certificate_expiration_timestamp_seconds{job="binding", instance="a", file="tls.crt"}'
DROPPED = 'muster_spans_total{job="binding", outcome="dropped"}'
SLI, FIRST_TRY = "scheduler_pod_scheduling_sli_duration_seconds", 'job="coordinator", attempts="1"'
ETCD, COMMIT = "muster_etcd_request_duration_seconds", 'job="coordinator", operation="commit"'
HOLD = 'muster_event_loop_hold_max_seconds{job="coordinator", instance="a"}'
LAG, PROCESS = "muster_event_loop_lag_seconds", 'job="coordinator", instance="a"'

HEALTHY: Series = {
    **{f'up{{job="{job}", instance="{job}-1"}}': "1x60" for job in SERVICES},
    LEADER: "1x60",
    STANDBY: "0x60",
    TERMS: "1x60",
    'scheduler_pending_pods{job="coordinator", queue="active"}': "8x60",
    'scheduler_pending_pods{job="coordinator", queue="unschedulable"}': "800x60",
    PLACED: "0+100x60",
    NO_ANSWER: "0+1x60",
    **latencies(SLI, FIRST_TRY, slow=False),
    **latencies(SLI, 'job="coordinator", attempts="2"', slow=True),
    'muster_pods_bound_total{job="binding"}': "0+800x60",
    FAILED_BINDS: "0+1x60",
    'muster_bind_errors_total{job="binding", reason="gone"}': "0+400x60",
    REPAIRING: "0 1 1 0 0 2 0x60",
    THROTTLED: "0+1x60",
    'muster_write_retries_total{job="binding", reason="write_failed"}': "0+60x60",
    'rest_client_requests_total{job="binding", method="POST", code="201"}': "0+800x60",
    FORBIDDEN: "0x60",
    ETCD_FAILURES: "0 0 0 0 0 2x60",
    **latencies(ETCD, COMMIT, slow=False),
    ETCD_SIZE: "1500000000x60",
    'etcd_server_quota_backend_bytes{job="etcd", instance="etcd-1"}': "2000000000x60",
    VIEW: "1x60",
    SILENCE: "10 30 25x60",
    WRONG: "0x60",
    'muster_placements_rejected_total{job="coordinator", reason="conflict"}': "0+9x60",
    IN_VAIN: "0 1 2x60",
    'muster_capacity_claims_ended_total{job="coordinator", kind="hold", reason="timed_out"}': "0+1x60",
    **latencies(LAG, PROCESS, slow=False),
    HOLD: "0.08 0.2 0.05x60",
    RETRIES: "0+1x60",
    'muster_quota_review_duration_seconds_count{job="lifecycle", code="200"}': "0+60x60",
    UNDECIDED: "0x60",
    UNDECIDED_DEVICES: "0x60",
    'muster_spans_total{job="binding", outcome="sent"}': "0+600x60",
    DROPPED: "0x60",
    # The default scheduler exposes metrics of the same names.
    'scheduler_pending_pods{job="kube-scheduler", queue="active"}': "8x60",
    'scheduler_schedule_attempts_total{job="kube-scheduler", result="error"}': "0+1000x60",
    **latencies(SLI, 'job="kube-scheduler", attempts="1"', slow=True),
    CERTIFICATE: "864000x90",  # in ten days: promtool's clock starts in 1970
}

CASES: list[tuple[str, str, Series, dict[str, str]]] = [
    ("MusterNoLeader", "10m", {LEADER: "0x60"}, {}),
    ("MusterNoLeader", "10m", {LEADER: None, STANDBY: None}, {}),
    ("MusterLeaderChanges", "40m", {TERMS: "0+1x60"}, {}),
    ("MusterServiceDown", "10m", {'up{job="binding", instance="binding-1"}': None}, {"job": "binding"}),
    ("MusterServiceDown", "10m", {'up{job="placement", instance="placement-1"}': "0x60"}, {"job": "placement"}),
    (
        "MusterReplicaDown",
        "10m",
        {'up{job="placement", instance="placement-2"}': "0x60"},
        {"job": "placement", "instance": "placement-2"},
    ),
    (
        "MusterReplicaDown",
        "10m",
        {'up{job="etcd", instance="etcd-2"}': "0x60"},
        {"job": "etcd", "instance": "etcd-2"},
    ),
    ("MusterSchedulingStalled", "30m", {PLACED: "5x60", NO_ANSWER: "5x60"}, {}),
    ("MusterAttemptsFailing", "30m", {NO_ANSWER: "0+50x60"}, {}),
    ("MusterSlowStarts", "40m", latencies(SLI, FIRST_TRY, slow=True), {}),
    ("MusterBindErrors", "40m", {FAILED_BINDS: "0+100x60"}, {}),
    ("MusterGangsRepairing", "50m", {REPAIRING: "2x60"}, {}),
    ("MusterApiServerThrottling", "40m", {THROTTLED: "0+60x60"}, {}),
    ("MusterForbidden", "40m", {FORBIDDEN: "0+6x60"}, {"job": "binding", "method": "PATCH", "code": "403"}),
    ("MusterEtcdUnavailable", "20m", {ETCD_FAILURES: "0+60x60"}, {}),
    ("MusterEtcdSlow", "40m", latencies(ETCD, COMMIT, slow=True), {}),
    ("MusterEtcdFull", "30m", {ETCD_SIZE: "1700000000x60"}, {"job": "etcd", "instance": "etcd-1"}),
    ("MusterCacheNotSynced", "10m", {VIEW: "0x60"}, {"job": "placement", "instance": "a"}),
    (
        "MusterWatchStalled",
        "10m",
        {SILENCE: "0+60x60"},
        {"job": "cluster-state", "instance": "a", "kind": "pods"},
    ),
    ("MusterPlacementsRejected", "30m", {WRONG: "0+1x60"}, {"reason": "insufficient_capacity"}),
    ("MusterPreemptionInVain", "50m", {IN_VAIN: "0+1x60"}, {}),
    ("MusterEventLoopLag", "40m", latencies(LAG, PROCESS, slow=True), {"job": "coordinator", "instance": "a"}),
    ("MusterEventLoopHeld", "5m", {HOLD: "0 2 0x60"}, {"job": "coordinator", "instance": "a"}),
    ("MusterControllerFailing", "40m", {RETRIES: "0+60x60"}, {"name": "quota"}),
    ("MusterQuotaReviewsFailing", "30m", {UNDECIDED: "0+5x60"}, {}),
    ("MusterDeviceReviewsFailing", "30m", {UNDECIDED_DEVICES: "0+5x60"}, {}),
    (
        "MusterCertificateExpiring",
        "70m",
        {CERTIFICATE: "432000x90"},
        {"job": "binding", "instance": "a", "file": "tls.crt"},
    ),
    ("MusterSpansLost", "55m", {DROPPED: "0+60x60"}, {"job": "binding"}),
]


def firing(selector: str, at: str, series: Series, expected: list[str]) -> dict[str, Any]:
    """A promtool test of the alerts that fire at a time."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values is not None],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertstate="firing"{selector}}}',
                "eval_time": at,
                "exp_samples": [{"labels": labels, "value": 1} for labels in expected],
            }
        ],
    }


def fires(name: str, at: str, changed: Series, labels: dict[str, str]) -> dict[str, Any]:
    rule = next(rule for rule in RULES if rule["alert"] == name)
    has = {"alertname": name, "alertstate": "firing", "severity": rule["labels"]["severity"], **labels}
    expected = "ALERTS{" + ", ".join(f"{label}={json.dumps(value)}" for label, value in has.items()) + "}"
    return firing(f', alertname="{name}"', at, HEALTHY | changed, [expected])


def test_prometheus_accepts_the_rules() -> None:
    promtool("check", "rules", ALERTS)


def test_alerts_fire_in_their_cases_only(tmp_path: Path) -> None:
    tests = [firing("", "55m", HEALTHY, []), *(fires(*case) for case in CASES)]
    file = tmp_path / "alerts.test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))

    promtool("test", "rules", file)


def test_every_alert_has_a_case_and_a_runbook_entry() -> None:
    names = [rule["alert"] for rule in RULES]
    assert sorted({name for name, *_ in CASES}) == sorted(names)
    assert re.findall(r"^## (Muster\w+)$", RUNBOOK.read_text(), re.M) == names
    for rule in RULES:
        assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
