"""Quality of the solver's answers, as JSON: random small groups under constraints against an enumeration.

python tests/bench/quality.py [--instances 10000] [--larger 500] [--kinds equal,mixed,group] [--first 0] [--show 5]

Per kind of group (homogeneous; heterogeneous; two gangs): how many are feasible and were placed, how many are
infeasible and were proved so, wrong answers (there are none), and how many placements are optimal. The others are
counted by the first policy in which they are worse, in the order in which soft constraints are given up, with the
difference relative to the optimal value, or to 1 if that is 0.

"larger" are heterogeneous gangs of up to 32 members on up to 40 nodes, whose optimum only the dynamic programme itself
can find, without a limit.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders.placement.large_instances import dynamic_programme_cost, random_larger_case
from builders.placement.optimum import Case, Cost, cost_of, optimum, terms
from builders.placement.small_instances import KINDS, Kind, answer_to, random_case
from muster.placement.solve.instance import NotPlaced, PartiallyPlaced


@dataclass
class Quality:
    """Counts over the cases of one kind."""

    counts: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    gaps: dict[str, list[float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    """Cases that are wrong, not placed although feasible, or not optimal."""

    def look_at(self, number: int, case: Case, best: Cost | None) -> None:
        """Solve a case and compare the answer with the optimal cost."""
        start = time.perf_counter()
        answer = answer_to(case)
        self.seconds.append(time.perf_counter() - start)
        self.counts["instances"] += 1
        self.counts["infeasible" if best is None else "feasible"] += 1
        if isinstance(answer, NotPlaced):
            self._not_placed(number, best, answer.proved)
            return
        cost = None if isinstance(answer, PartiallyPlaced) else cost_of(case, answer)
        if cost is None or best is None or cost < best:
            self._note("wrong", number)
            return
        self.counts["placed"] += 1
        self._compare(number, case, cost, best)

    def _not_placed(self, number: int, best: Cost | None, proved: bool) -> None:
        if best is None:
            self.counts["proved" if proved else "infeasible but not proved"] += 1
        else:
            self._note("wrong" if proved else "not found", number)

    def _compare(self, number: int, case: Case, cost: Cost, best: Cost) -> None:
        names = terms(case)
        self.asked.update(set(names))
        if cost == best:
            self.counts["optimal"] += 1
            return
        worse = next(index for index, (ours, least) in enumerate(zip(cost, best, strict=True)) if ours != least)
        gap = (cost[worse] - best[worse]) / max(1, best[worse])
        self.gaps.setdefault(names[worse], []).append(gap)
        self.found.append(f"{names[worse]} {number}: {cost} for {best}")

    def _note(self, what: str, number: int) -> None:
        self.counts[what] += 1
        self.found.insert(0, f"{what} {number}")

    def summary(self, show: int) -> dict[str, Any]:
        """Summary in words and figures."""
        words = ("instances", "feasible", "placed", "not found", "optimal", "infeasible", "proved", "wrong")
        summary: dict[str, Any] = {word: self.counts[word] for word in words}
        summary["policies"] = {
            policy: _told_gaps(self.gaps.get(policy, []), self.asked[policy]) for policy in sorted(self.asked)
        }
        summary["median_milliseconds"] = round(statistics.median(self.seconds) * 1000, 3)
        if show:
            summary["found"] = self.found[:show]
        return summary


def _told_gaps(gaps: list[float], asked: int) -> dict[str, float]:
    return {
        "instances": asked,
        "worse": len(gaps),
        "mean_gap": round(sum(gaps) / asked, 4),
        "largest_gap": round(max(gaps, default=0.0), 2),
    }


def measure(kind: Kind, instances: int, first: int = 0) -> Quality:
    """Cases of a kind from number `first`."""
    quality = Quality()
    for number in range(first, first + instances):
        case = random_case(number, kind)
        quality.look_at(number, case, optimum(case))
    return quality


def measure_larger(instances: int, first: int = 0) -> Quality:
    """Larger cases from number `first`."""
    quality = Quality()
    for number in range(first, first + instances):
        case = random_larger_case(number)
        quality.look_at(number, case, dynamic_programme_cost(case))
    return quality


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--larger", type=int, default=500, help="instances too large to look at every place")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--show", type=int, default=0, help="how many cases to name that could be better")
    options = parser.parse_args()
    chosen = [kind for kind in KINDS if kind in options.kinds.split(",")]
    if not chosen:
        parser.error(f"there is no kind {options.kinds!r}; there are {', '.join(KINDS)}")
    each = -(-options.instances // len(chosen))
    summary: dict[str, Any] = {kind: measure(kind, each, options.first).summary(options.show) for kind in chosen}
    if options.larger:
        summary["larger"] = measure_larger(options.larger, options.first).summary(options.show)
    print(json.dumps({"instances": each * len(chosen) + options.larger, "kinds": summary}, indent=2))


if __name__ == "__main__":
    main()
