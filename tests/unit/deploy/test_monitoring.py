"""Monitoring objects of the chart: alerts for its own release only, and the dashboard."""

import json
import re
from pathlib import Path

import yaml

from builders.deploy.helm import CHART, JSON, NAMESPACE, of_kind, rendered
from builders.deploy.promtool import promtool

FILES = CHART / "files" / "dashboards"
ON = "metrics: {prometheusRule: {enabled: true}, dashboard: {enabled: true}}"


def rules(made: list[JSON]) -> dict[str, JSON]:
    """Alert rules by name."""
    [group] = of_kind(made, "PrometheusRule")["muster"]["spec"]["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_monitoring_objects_require_their_values_and_metrics() -> None:
    for values in ("{}", ON.replace("{", "{enabled: false, ", 1)):
        made = rendered(values)
        assert not of_kind(made, "PrometheusRule")
        assert not of_kind(made, "ConfigMap")


def test_alerts_equal_the_file_and_select_the_namespace(tmp_path: Path) -> None:
    made = rendered(ON)
    [source] = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    found = rules(made)
    assert list(found) == [rule["alert"] for rule in source["rules"]]
    for rule in source["rules"]:
        alert = found[rule["alert"]]
        for expression in re.findall(r"\{([^}]*)\}", alert["expr"]):
            assert f'namespace="{NAMESPACE}"' in expression, rule["alert"]
        assert alert == rule | {"expr": rule["expr"].replace("job=", f'namespace="{NAMESPACE}",job=')}

    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(of_kind(made, "PrometheusRule")["muster"]["spec"]))
    promtool("check", "rules", file)


def test_an_external_placement_raises_no_alert() -> None:
    elsewhere = "placement: {implementation: external, external: {address: 'solver:1'}}"
    assert 'absent(up{namespace="muster-system",job="placement"})' in rules(rendered(ON))["MusterServiceDown"]["expr"]
    there = rules(rendered(f"{ON}\n{elsewhere}"))["MusterServiceDown"]["expr"]
    assert re.findall(r'absent\(up\{[^}]*job="([^"]*)"\}\)', there) == ["cluster-state", "binding"]


def test_runbook_links_use_the_given_base() -> None:
    made = rendered("metrics: {prometheusRule: {enabled: true, runbooks: 'https://git.example.com/muster/'}}")
    link = rules(made)["MusterNoLeader"]["annotations"]["runbook_url"]
    assert link == "https://git.example.com/muster/docs/alerts.md#musternoleader"


def test_the_dashboard_is_found_by_its_label() -> None:
    values = "metrics: {dashboard: {enabled: true, annotations: {grafana_folder: Batch}, namespace: grafana}}"
    metadata = {name: each["metadata"] for name, each in of_kind(rendered(values), "ConfigMap").items()}
    assert metadata["muster-dashboard"]["namespace"] == "grafana"
    assert metadata["muster-dashboard"]["labels"]["grafana_dashboard"] == "1"
    assert metadata["muster-dashboard"]["annotations"] == {"grafana_folder": "Batch"}

    [made] = of_kind(rendered(ON), "ConfigMap").values()
    assert made["metadata"]["namespace"] == NAMESPACE
    assert json.loads(made["data"]["muster.json"]) == json.loads((FILES / "muster.json").read_text())
