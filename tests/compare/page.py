"""Generates docs/comparison.md, and the table of it in the README, from the results of the last run.

python tests/compare/page.py
"""

import re
import sys
import textwrap
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compare.checks import CHECKS
from compare.contenders import CONTENDERS
from compare.measurements import BARE, FULL_NODES, MEASUREMENTS, PREEMPTION
from compare.results import Results, Spread, read_results

_ROOT: Final = Path(__file__).parents[2]
PAGE: Final = _ROOT / "docs" / "comparison.md"
README: Final = _ROOT / "README.md"
_WIDTH: Final = 100
_REQUESTS: Final = "gangs of 100, from the start"
"""The measurement whose requests are shown."""
_NAMES: Final = [each.name for each in CONTENDERS]
_HEAD: Final = """\
# Comparison

`make compare` runs Muster and other gang schedulers on the same machine and the same work, one
after the other in turn, each on a kube-apiserver of its own with etcd (fsync),
kube-controller-manager and hollow nodes of 64 CPUs in racks of 20. This page is generated from its
results by [tests/compare](../tests/compare); do not edit it.

```console
make compare                                          # everything, about six hours
make compare ARGS="rates --nodes 1000 --repetitions 1"
make compare ARGS="checks --schedulers kube-scheduler --only order"
make compare ARGS="--write"                           # everything, and this page
make compare ARGS="rates --repetitions 1 --add"       # one more repetition for this page
```
"""


def page(results: Results) -> str:
    """The whole page."""
    sizes = sorted(int(nodes) for nodes in results.figures if nodes != str(FULL_NODES))
    parts = [_HEAD, _circumstances(results)]
    parts += [_rates(results, nodes) for nodes in sizes]
    parts += [_preemption(results), _checks(results)]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def write_page(results: Results | None = None) -> None:
    """Write docs/comparison.md and the README's table."""
    results = results or read_results()
    PAGE.write_text(page(results))
    README.write_text(with_table(README.read_text(), results))


def with_table(readme: str, results: Results) -> str:
    """The README with the table of the smallest cluster between its marks."""
    nodes = min((int(each) for each in results.figures if each != str(FULL_NODES)), default=0)
    if not nodes:
        return readme
    table = "\n".join(_table(results, nodes, [name for name in MEASUREMENTS if "start" in name or "latency" in name]))
    marks = "<!-- comparison -->\n", "<!-- end of comparison -->"
    return re.sub(f"{marks[0]}.*?{marks[1]}", lambda _: f"{marks[0]}{table}\n{marks[1]}", readme, flags=re.DOTALL)


def _circumstances(results: Results) -> str:
    machine = results.machine
    lines = [
        _wrapped(
            f"Machine: {machine['cores']} cores, {machine['processor']}, {machine['memory_gib']} GiB. All processes and"
            " the load generator share it. "
            + "; ".join(f"{name} {version}" for name, version in results.versions.items())
            + "."
        ),
        "",
        "| scheduler | set up |",
        "|---|---|",
        *(f"| {name} | {results.settings[name]} |" for name in _NAMES),
    ]
    return "\n".join(lines) + "\n"


def _rates(results: Results, nodes: int) -> str:
    counts = {len(each) for by in results.figures[str(nodes)].values() for each in by.values()}
    runs = " to ".join(map(str, sorted({min(counts), max(counts)})))
    text = (
        f"{results.pods:,} pods for each rate, 1,000 of gangs in a rack. *From the start*: the pods exist when the"
        " scheduler is started, and time runs from its start to the last bind, so that its own start counts."
        " *Running*: time runs from the creation of the first pod, so that the creation counts."
        f" {'One run' if runs == '1' else f'Medians of {runs} runs, with the lowest and the highest'}; in parentheses"
        " the share of the pods that were bound within 300 s, if not all were. *Bare binds*: one client that binds pods"
        " and decides nothing."
    )
    if any("requests_per_pod" in run for by in results.figures[str(nodes)].get(_REQUESTS, {}).values() for run in by):
        text += (
            f" *API requests*: those of {_REQUESTS}, of all processes from the scheduler's start to its end, counted by"
            " the API server."
        )
    names = [*MEASUREMENTS, BARE]
    return "\n".join([f"## {nodes:,} nodes", "", _wrapped(text), "", *_table(results, nodes, names)]) + "\n"


def _table(results: Results, nodes: int, names: list[str]) -> list[str]:
    found = results.figures.get(str(nodes), {})
    schedulers = [each for each in _NAMES if any(each in found.get(name, {}) for name in names)]
    lines = ["| | " + " | ".join(schedulers) + " |", "|---|" + "---|" * len(schedulers)]
    for name in names:
        if name == BARE and name in found:
            value = _figure(found[name][BARE])
            lines.append(f"| {name}, pods/s | {value}" + " | " * (len(schedulers) - 1) + " |")
        elif name in found:
            unit = "p50 / worst, ms" if name == "latency of a gang of 8" else "pods/s"
            cells = [_figure(found[name][each]) if each in found[name] else "" for each in schedulers]
            lines.append(f"| {name}, {unit} | " + " | ".join(cells) + " |")
    counted = found.get(_REQUESTS, {})
    cells = [_with_spread(counted[each], "requests_per_pod", ".1f") if each in counted else "" for each in schedulers]
    return [*lines, "| API requests for each pod | " + " | ".join(cells) + " |"] if any(cells) else lines


def _figure(runs: list[dict[str, float]]) -> str:
    if "p50_ms" in runs[0]:
        p50, worst = Spread(runs, "p50_ms"), Spread(runs, "worst_ms")
        return f"{p50.median:,.0f} / {worst.highest:,.0f}"
    if "seconds" in runs[0]:
        return _with_spread(runs, "seconds", ".1f")
    return _with_spread(runs, "pods_per_second", ",.0f")


def _with_spread(runs: list[dict[str, float]], figure: str, form: str) -> str:
    """The median, with the lowest and the highest if there are several runs; empty if none has measured it."""
    runs = [run for run in runs if figure in run]
    if not runs:
        return ""
    spread = Spread(runs, figure)
    ends = f" ({spread.lowest:{form}} to {spread.highest:{form}})" if len(runs) > 1 else ""
    return f"{spread.median:{form}}{ends}{_missing(runs)}"


def _missing(runs: list[dict[str, float]]) -> str:
    bound = min(run.get("bound", 1.0) for run in runs)
    return "" if bound == 1 else f" ({bound:.0%})"


def _preemption(results: Results) -> str:
    found = results.figures.get(str(FULL_NODES), {}).get(PREEMPTION)
    if not found:
        return ""
    text = (
        f"A gang of 64 pods of high priority, each of which needs a whole node, on {FULL_NODES} nodes that pods of low"
        " priority fill, one each: seconds from the first creation to the last bind, and pods that were evicted."
    )
    cells = [_figure(found[each]) if each in found else "" for each in _NAMES]
    evicted = [f"{Spread(found[each], 'evicted').median:.0f}" if each in found else "" for each in _NAMES]
    lines = ["| | " + " | ".join(_NAMES) + " |", "|---|" + "---|" * len(_NAMES)]
    lines += ["| seconds | " + " | ".join(cells) + " |", "| evicted | " + " | ".join(evicted) + " |"]
    return "\n".join(["## Preemption", "", _wrapped(text), "", *lines]) + "\n"


def _checks(results: Results) -> str:
    if not results.checks:
        return ""
    lines = ["## Checks", "", _wrapped("On 20 nodes, once each. [The checks](../tests/compare/checks.py)."), ""]
    for name, check in CHECKS.items():
        found = results.checks.get(name)
        if not found:
            continue
        lines += [f"**{name.capitalize()}.** {' '.join((check.__doc__ or '').split())}", ""]
        lines = [*lines[:-2], _wrapped(lines[-2]), ""]
        lines += ["| scheduler | | seen |", "|---|---|---|"]
        for each in _NAMES:
            if each in found:
                passed, seen = found[each]
                lines.append(f"| {each} | {'yes' if passed else '**no**'} | {seen.replace('|', '/')} |")
        lines.append("")
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    write_page()
