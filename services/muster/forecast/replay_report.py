"""Figures of replays: utilisation, waits by size and priority, fragmentation, preemptions."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from muster.forecast.replay import Outcome, Present, Run

_SIZES: Final = ((1, 1), (2, 7), (8, 31), (32, 127), (128, None))
"""Classes of gangs by members: the least and the largest number."""
_QUANTILES: Final = (0.5, 0.9, 0.99)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """All figures of a replay; times in seconds, shares from 0 to 1."""
    runs = outcome.runs
    waits = [run.waited_seconds for run in runs if run.waited_seconds is not None]
    return {
        "mode": outcome.mode.value,
        "gangs": len(runs),
        "started": len(waits),
        "ended": sum(run.ended is not None for run in runs),
        "never_started": len(runs) - len(waits),
        "seconds": round(outcome.seconds, 1),
        "utilisation": {name: round(shares.used, 4) for name, shares in sorted(outcome.shares.items())},
        "fragmentation": {name: round(shares.fragmented, 4) for name, shares in sorted(outcome.shares.items())},
        "preemptions": sum(run.preemptions for run in runs),
        "evicted_pods": sum(run.evicted_pods for run in runs),
        "waited_seconds": distribution(waits),
        "by_members": {label: _waits(some) for label, some in by_size(runs) if some},
        "by_priority": {
            str(priority): _waits([run for run in runs if run.submission.priority == priority])
            for priority in sorted({run.submission.priority for run in runs})
        },
        **({} if outcome.present is None else {"snapshot": _of_snapshot(outcome.present)}),
        "steps": outcome.steps,
        "solves": outcome.solves,
    }


def _of_snapshot(present: Present) -> dict[str, Any]:
    """Gangs that waited at the begin; waits are from then."""
    waits = [at for at in present.waiting.values() if at is not None]
    return {
        "running_pods": present.running_pods,
        "waiting_gangs": len(present.waiting),
        "started": len(waits),
        "waited_seconds": distribution(waits),
    }


def _waits(runs: Sequence[Run]) -> dict[str, Any]:
    waits = [run.waited_seconds for run in runs if run.waited_seconds is not None]
    return {"gangs": len(runs), "never_started": len(runs) - len(waits), **distribution(waits)}


def distribution(values: Iterable[float]) -> dict[str, float | None]:
    """Mean, quantiles and maximum; None without any value."""
    ordered = sorted(values)
    if not ordered:
        return {"mean": None, **{_label(share): None for share in _QUANTILES}, "max": None}
    return {
        "mean": round(sum(ordered) / len(ordered), 1),
        **{_label(share): round(quantile(ordered, share), 1) for share in _QUANTILES},
        "max": round(ordered[-1], 1),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the ordered values is, by the nearest rank."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def by_size(runs: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    """Runs by the number of members of their gangs."""
    listed = list(runs)
    found = []
    for least, most in _SIZES:
        label = str(least) if least == most else f"{least}-{most}" if most is not None else f"{least}+"
        some = [r for r in listed if r.submission.members >= least and (most is None or r.submission.members <= most)]
        found.append((label, some))
    return found


def _label(share: float) -> str:
    return f"p{round(100 * share)}"
