"""Dashboards and alerts ask only for metrics and labels that are told, in words that Prometheus understands."""

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
TOLD = documented_metrics() | OF_PYTHON | OF_ETCD
FROM_PROMETHEUS = {"job", "instance", "le"}
_SERIES = re.compile(r"\b((?:muster|scheduler|rpc|rest_client|workqueue|process|etcd)_\w+)(?:\{([^}]*)\})?")
_SELECTED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def panels() -> Iterator[dict[str, Any]]:
    dashboard = json.loads((FOLDER / "muster.json").read_text())
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def expressions() -> list[tuple[str, str]]:
    """Name of the panel or alert, and what it asks."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
    asked = [(rule["alert"], rule["expr"]) for rule in rules]
    return asked + [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_only_what_is_told_is_asked_for(where: str, expression: str) -> None:
    found = [match for match in _SERIES.finditer(expression) if not match[1].startswith(("rpc_method", "rpc_response"))]
    assert found or "up{" in expression, f"{where} asks for nothing of Muster"
    labels: set[str] = set(FROM_PROMETHEUS)
    for match in found:
        name = match[1] if match[1] in TOLD else series_of(match[1])
        assert name in TOLD, f"{where} asks for {match[1]}, which nobody tells"
        assert (name == match[1]) == (TOLD[name].kind != "histogram"), f"{match[1]} is of the type {TOLD[name].kind}"
        labels |= TOLD[name].labels
        selected = set(_SELECTED.findall(match[2] or ""))
        assert selected <= TOLD[name].labels | FROM_PROMETHEUS, f"{where} selects by labels that {name} has not"
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", grouped)) <= labels, f"{where} groups by labels that are not there"


def test_figures_of_the_default_scheduler_and_other_programs_are_left_out() -> None:
    """Names that others tell too are asked for by job. Alerts always do: the chart adds the namespace to the job."""
    alerts = {rule["alert"] for rule in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]}
    for where, expression in expressions():
        for match in _SERIES.finditer(expression):
            if match[1].startswith(("rpc_method", "rpc_response")) or (
                match[1].startswith("muster_") and where not in alerts
            ):
                continue
            assert "job" in _SELECTED.findall(match[2] or ""), f"{where} asks for {match[1]} of anybody"


def test_every_metric_is_shown() -> None:
    asked = " ".join(expression for _, expression in expressions())
    shown = {series_of(match[1]) for match in _SERIES.finditer(asked)}
    names = {name for name in documented_metrics() if name not in shown}

    assert names <= {"muster_gang_start_duration_seconds", "muster_watched_objects"}, "shown nowhere"


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        where = panel["gridPos"]
        assert where["x"] + where["w"] <= 24
        for x in range(where["x"], where["x"] + where["w"]):
            for y in range(where["y"], where["y"] + where["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]


def test_prometheus_understands_every_panel(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, (_, expression) in enumerate(expressions())
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    promtool("check", "rules", file)
