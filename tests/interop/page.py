"""Generates docs/interop.md from the results of the last run.

python tests/interop/page.py
"""

import sys
import textwrap
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml

from interop.controllers import CONTROLLERS, Controller
from interop.gang import GANG, Gang
from interop.kinds import KINDS
from interop.results import Outcome, Result, Run, read_run
from interop.scenarios import SCENARIOS
from interop.workload_kind import WorkloadKind

PAGE: Final = Path(__file__).parents[2] / "docs" / "interop.md"
_WIDTH: Final = 100
_HEAD: Final = """\
# Workload controllers

Which controllers work with Muster, and what to set. `make interop` builds each controller in the
version below, starts it on a real kube-apiserver with simulated kubelets and all services of
Muster, and runs each scenario with each workload. This page is generated from the results by
[tests/interop](../tests/interop); do not edit it.

A workload is a gang by the two [lightweight labels](gang-rules.md) in its pod templates ("the
gang's labels" below) or by what its controller creates. All pods of a gang must start together.
Times are those of the whole scenario on two cores. Nodes and kubelets are simulated; where a node
is lost, the test ends its pods as the pod garbage collector does a minute later.

```console
make interop
make interop ARGS="--workload JobSet --scenario restart"
make interop ARGS="--write"        # every scenario, and this page
```
"""


def page(run: Run) -> str:
    """The whole page."""
    parts = [_HEAD, _controllers(run), _scenarios(), *(_controller(run, each) for each in CONTROLLERS)]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def write_page() -> None:
    """Write docs/interop.md."""
    PAGE.write_text(page(read_run()))


def _controllers(run: Run) -> str:
    head = [
        "## Controllers",
        "",
        "| controller | version | how it runs here | scenarios that work |",
        "|---|---|---|---|",
    ]
    rows = []
    for each in CONTROLLERS:
        outcomes = [result.outcome for result in run.results if result.controller == each.name]
        works = outcomes.count(Outcome.WORKS)
        of = works + outcomes.count(Outcome.FAILS)
        rows.append(f"| [{each.name}](#{each.name}) | {run.versions[each.name]} | {each.notes} | {works} of {of} |")
    return "\n".join([*head, *rows, ""])


def _scenarios() -> str:
    head = ["## Scenarios", "", "| scenario | what is checked | blank for |", "|---|---|---|"]
    rows = [f"| {each.name} | {' '.join((each.run.__doc__ or '').split())} | {each.blank_for} |" for each in SCENARIOS]
    return "\n".join([*head, *rows, ""])


def _controller(run: Run, controller: Controller) -> str:
    """Settings that the controller needs, and a table of its workloads by scenario."""
    kinds = [kind for kind in KINDS if kind.controller == controller.name]
    if not kinds:
        return ""
    results = {(each.workload, each.scenario): each for each in run.results if each.controller == controller.name}
    lines = [f"## {controller.name}", ""]
    for kind in kinds:
        lines += _wrapped(f"* **{kind.name}**: {kind.user_sets}.{f' {kind.notes}' if kind.notes else ''}")
    lines += ["", f"| scenario | {' | '.join(kind.name for kind in kinds)} |", f"|---{'|---' * len(kinds)}|"]
    for scenario in SCENARIOS:
        cells = [_cell(results.get((kind.name, scenario.name))) for kind in kinds]
        if any(cells):
            lines.append(f"| {scenario.name} | {' | '.join(cells)} |")
    for remark in sorted({each.remark for each in results.values() if each.remark}):
        lines += ["", f"\\* {remark}."]
    for kind in kinds:
        if kind.is_example:
            lines += ["", f"A {kind.name} as the scenarios declare it:", "", "```yaml", *_manifest(kind), "```"]
    failures = [each for each in results.values() if each.outcome is Outcome.FAILS]
    if failures:
        lines += ["", "What fails:", ""]
    for each in failures:
        lines += _wrapped(f"* {each.workload}, {each.scenario}: {each.reason.splitlines()[0]}")
    return "\n".join([*lines, ""])


def _manifest(kind: WorkloadKind) -> list[str]:
    """Lines of the manifest of a gang, without what only the scenarios need."""
    documents = [_without(each, GANG, "namespace") for each in kind.objects(Gang("default", "train", 4, {}))]
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)
    return text.rstrip().splitlines()


class _Dumper(yaml.SafeDumper):
    """Writes equal parts of a manifest out each time."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _without(value: Any, *keys: str) -> Any:
    """The value without these keys and without empty dictionaries that held them."""
    if isinstance(value, list):
        return [_without(each, *keys) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without(each, *keys) for key, each in value.items() if key not in keys}
    return {key: each for key, each in kept.items() if each != {} or key in ("rayStartParams",)}


def _cell(result: Result | None) -> str:
    """The time of the scenario if it works; empty if the workload cannot do it."""
    if result is None or result.outcome is Outcome.DOES_NOT_APPLY:
        return ""
    return "**fails**" if result.outcome is Outcome.FAILS else f"{result.seconds:.1f} s{' *' if result.remark else ''}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    write_page()
