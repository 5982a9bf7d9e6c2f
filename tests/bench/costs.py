"""CPU seconds and peak memory of processes."""

from dataclasses import dataclass

import psutil

from muster.localcluster.stack import SERVICES, Stack


@dataclass(frozen=True)
class Cost:
    """CPU in seconds (user and system), memory in MiB (highest resident size so far)."""

    cpu_seconds: float
    peak_mib: float


def costs(stack: Stack, external: dict[str, int] | None = None) -> dict[str, Cost]:
    """Costs of all running services and servers; `external`: further processes by name."""
    pids = {name: child.pid for name, child in stack.children.items() if child.running}
    return {name: _cost(pid) for name, pid in {**pids, **(external or {})}.items()}


def spent(before: dict[str, Cost], after: dict[str, Cost]) -> dict[str, dict[str, float]]:
    """CPU between two moments and peak memory at the second, as JSON; the services first."""
    order = [*SERVICES, *sorted(after.keys() - set(SERVICES))]
    return {
        name: {
            "cpu_seconds": round(after[name].cpu_seconds - (before[name].cpu_seconds if name in before else 0.0), 2),
            "peak_mib": round(after[name].peak_mib, 1),
        }
        for name in order
        if name in after
    }


def memory_mib(stack: Stack) -> dict[str, float]:
    """Resident memory of every service now."""
    pids = {name: stack.children[name].pid for name in SERVICES}
    return {name: round(psutil.Process(pid).memory_info().rss / 2**20, 1) for name, pid in pids.items()}


def _cost(pid: int) -> Cost:
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Cost(times.user + times.system, _peak_kib(pid) / 1024 or process.memory_info().rss / 2**20)


def _peak_kib(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/status") as status:  # noqa: PTH123
            return next((float(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0.0)
    except FileNotFoundError:
        return 0.0
