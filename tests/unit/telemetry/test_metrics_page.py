"""docs/metrics.md lists every declared metric."""

import re
import subprocess
import sys

from builders.docs.metrics import PAGE, ROOT, documented_metrics


def test_page_equals_the_declarations() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "metrics_page.py")], capture_output=True, text=True, check=True
    )

    assert made.stdout == PAGE.read_text(), "python tools/metrics_page.py --write"


def test_metric_names_are_unique() -> None:
    names = re.findall(r"^\| `([a-z_]+)` \| (?:counter|gauge|histogram) ", PAGE.read_text(), re.MULTILINE)

    assert len(names) == len(set(names)) == len(documented_metrics())


def test_names_end_with_unit_and_kind() -> None:
    for name, metric in documented_metrics().items():
        if metric.kind == "counter":
            assert name.endswith("_total"), name
        if metric.kind == "histogram":
            assert name.endswith("_seconds") or name == "scheduler_preemption_victims", name
        assert not metric.labels & {"pod", "gang", "node", "uid", "namespace"}, f"{name} would have unbounded series"
