"""Dashboards and alerts query only metrics and labels that exist, in valid PromQL."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders.deploy.promtool import promtool
from builders.docs.metrics import ROOT, Documented, documented_metrics, series_of

FOLDER = ROOT / "deploy" / "dashboards"
OF_PYTHON = {
    "process_cpu_seconds_total": Documented("", "counter", frozenset()),
    "process_resident_memory_bytes": Documented("", "gauge", frozenset()),
}
OF_ETCD = {
    "etcd_mvcc_db_total_size_in_bytes": Documented("", "gauge", frozenset()),
    "etcd_server_quota_backend_bytes": Documented("", "gauge", frozenset()),
}
EXPOSED = documented_metrics() | OF_PYTHON | OF_ETCD
FROM_PROMETHEUS = {"job", "instance", "le"}
_SERIES = re.compile(r"\b((?:muster|scheduler|rpc|rest_client|workqueue|process|etcd)_\w+)(?:\{([^}]*)\})?")
_SELECTED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def panels() -> Iterator[dict[str, Any]]:
    dashboard = json.loads((FOLDER / "muster.json").read_text())
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def expressions() -> list[tuple[str, str]]:
    """Name and expression of each alert and panel query."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    queries = [(rule["alert"], rule["expr"]) for rule in rules]
    return queries + [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_queries_use_only_exposed_metrics_and_labels(where: str, expression: str) -> None:
    found = [match for match in _SERIES.finditer(expression) if not match[1].startswith(("rpc_method", "rpc_response"))]
    assert found or "up{" in expression, f"{where} queries no metric of Muster"
    labels: set[str] = set(FROM_PROMETHEUS)
    for match in found:
        name = match[1] if match[1] in EXPOSED else series_of(match[1])
        assert name in EXPOSED, f"{where} queries {match[1]}, which is not exposed"
        assert (name == match[1]) == (EXPOSED[name].kind != "histogram"), f"{match[1]} is a {EXPOSED[name].kind}"
        labels |= EXPOSED[name].labels
        selected = set(_SELECTED.findall(match[2] or ""))
        assert selected <= EXPOSED[name].labels | FROM_PROMETHEUS, f"{where} selects by labels that {name} lacks"
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", grouped)) <= labels, f"{where} groups by labels that do not exist"


def test_queries_of_shared_metric_names_select_the_job() -> None:
    """Names that other programs expose too are selected by job. Alerts always: the chart adds the namespace to it."""
    alerts = {rule["alert"] for rule in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]}
    for where, expression in expressions():
        for match in _SERIES.finditer(expression):
            if match[1].startswith(("rpc_method", "rpc_response")) or (
                match[1].startswith("muster_") and where not in alerts
            ):
                continue
            assert "job" in _SELECTED.findall(match[2] or ""), f"{where} queries {match[1]} of any job"


def test_every_metric_is_shown() -> None:
    queries = " ".join(expression for _, expression in expressions())
    shown = {series_of(match[1]) for match in _SERIES.finditer(queries)}
    names = {name for name in documented_metrics() if name not in shown}

    assert names <= {"muster_gang_start_duration_seconds", "muster_watched_objects"}, "not shown"


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        where = panel["gridPos"]
        assert where["x"] + where["w"] <= 24
        for x in range(where["x"], where["x"] + where["w"]):
            for y in range(where["y"], where["y"] + where["h"]):
                assert (x, y) not in taken, f"{panel['title']} overlaps {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_prometheus_accepts_every_panel_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, (_, expression) in enumerate(expressions())
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    promtool("check", "rules", file)
