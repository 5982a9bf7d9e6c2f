"""Pods whose inter-pod rules differ: memory and time of cluster-state, the coordinator and placement, as JSON.

make bench-diversity [ARGS="--jobs 5000 --nodes 5000 --pods 100000"]

`exclusive`: one-pod jobs with the affinity that JobSet writes for exclusive placement, each with two selectors of its
own, come, run and go. `selected`: one more pod has a selector that selects many running pods, with equal labels or with
labels of their own. `budgets`: one more PodDisruptionBudget in a namespace with many pods and budgets. Every scenario
runs in a process of its own; the stream is encoded and decoded.
"""

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders.clusterstate.history import History, Object, budget_object, pod_object
from builders.core.objects import node as machine
from builders.kube.inter_pod_rules import affinity, term
from muster.clusterstate.chunks import delta_chunks
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.events import Rules
from muster.coordinator.core.slices import run_to_end
from muster.gangs.byte_cache import age_caches
from muster.gangs.facts import Batch, NodeFacts, kind_id
from muster.gangs.solve import Role, SolveGang, SolveGroup
from muster.kube.api_resources import PODS
from muster.placement.solve.instance import Placed
from muster.placement.solve.solve import solve
from muster.placement.state.cluster import Cluster
from muster.rpc.watch_codec import decode_batch, encode_batch

JOB_KEY: Final = "jobset.sigs.k8s.io/job-key"
RACK: Final = "rack"


def exclusive_pod(index: int, node: str = "") -> Object:
    """A pod of a job that must have a rack of its own, as JobSet's webhook writes it."""
    key = f"{index:040x}"
    own = {"matchExpressions": [{"key": JOB_KEY, "operator": "In", "values": [key]}]}
    others = {
        "matchExpressions": [
            {"key": JOB_KEY, "operator": "Exists"},
            {"key": JOB_KEY, "operator": "NotIn", "values": [key]},
        ]
    }
    rules = affinity(
        near=[term(own, topologyKey=RACK, namespaceSelector={})],
        away=[term(others, topologyKey=RACK, namespaceSelector={})],
    )
    labels = {JOB_KEY: key, "batch.kubernetes.io/job-name": f"job-{index}", "app": "train"}
    return pod_object(f"job-{index}-0", namespace=f"team-{index % 50}", labels=labels, affinity=rules, node=node)


def running(item: Object, node: str) -> Object:
    return {**item, "spec": {**item["spec"], "nodeName": node}, "status": {"phase": "Running"}}


class Measured:
    """Memory that a service takes more than before, and its longest and mean time per call."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.longest = 0.0
        self.calls = 0

    def time(self, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = call()
        taken = time.perf_counter() - started
        self.seconds += taken
        self.longest = max(self.longest, taken)
        self.calls += 1
        return result

    def figures(self) -> dict[str, float]:
        return {
            "mean_ms": round(1000 * self.seconds / max(1, self.calls), 3),
            "longest_ms": round(1000 * self.longest, 1),
        }


def mib() -> float:
    """Resident memory now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 2**20, 1)


def nodes(count: int) -> tuple[NodeFacts, ...]:
    return tuple(machine(f"n{index}", 64, labels={RACK: f"r{index}"}) for index in range(count))


class Coordinator:
    """The cache of the coordinator's core."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.cache = Cache(self.ledger, TopologyTrees(), lambda event: None, Rules())
        run_to_end(self.cache.replace(Batch()))

    def apply(self, batch: Batch) -> None:
        run_to_end(self.cache.apply(batch))
        self.cache.gone.clear()
        self.cache.disbanded.clear()
        self.cache.touched.clear()


class Placement:
    """The mirror of placement."""

    def __init__(self) -> None:
        self.cluster = Cluster()

    def apply(self, batch: Batch) -> None:
        self.cluster.apply(batch)
        self.cluster.state.refresh()


SERVICES: Final = ("cluster-state", "coordinator", "placement")


def follow(service: str, count: int) -> tuple[History, Callable[[Batch], None], Coordinator, Placement]:
    history, coordinator, placement = History(), Coordinator(), Placement()
    for each in (coordinator, placement):
        each.apply(Batch(nodes=nodes(count)))
    apply: dict[str, Callable[[Batch], None]] = {
        "cluster-state": lambda batch: None,
        "coordinator": coordinator.apply,
        "placement": placement.apply,
    }
    return history, apply[service], coordinator, placement


def exclusive(service: str, jobs: int, count: int) -> dict[str, Any]:
    """`service` follows jobs that come, run and go; its memory is measured, the time of each of its steps, and of one
    solve while all of them run.
    """
    history, apply, coordinator, placement = follow(service, count)
    before, steps = mib(), Measured()
    as_state = service == "cluster-state"

    def step(change: Callable[[], Batch]) -> None:
        batch = steps.time(change) if as_state else change()
        for chunk in delta_chunks(batch, {}):
            message = encode_batch(chunk)
            size[0] += message.ByteSize()
            if not as_state:
                decoded = decode_batch(message)
                steps.time(lambda decoded=decoded: apply(decoded))  # type: ignore[misc]

    size = [0]
    for index in range(jobs):
        pod = exclusive_pod(index)
        step(lambda pod=pod: history.pods(pod))  # type: ignore[misc]
        step(lambda pod=pod, index=index: history.pods(running(pod, f"n{index}")))  # type: ignore[misc]
    figures: dict[str, Any] = {"running_mib": round(mib() - before, 1), **steps.figures()}
    figures["stream_kib_per_job"] = round(size[0] / 1024 / jobs, 1)
    if service == "placement":
        figures["solve_ms"] = one_solve(history, apply, coordinator, placement, jobs)
    going = steps = Measured()
    for index in range(jobs + (service == "placement")):
        step(lambda index=index: history.remove(PODS, f"uid-job-{index}-0"))  # type: ignore[misc]
    for _ in range(3):
        step(history.state.sweep)
        age_caches()
    figures["going_longest_ms"] = going.figures()["longest_ms"]
    figures["after_mib"] = round(mib() - before, 1)
    return figures


def one_solve(
    history: History, apply: Callable[[Batch], None], coordinator: Coordinator, placement: Placement, jobs: int
) -> list[float]:
    """Milliseconds for a pod of one more job: the first time, and again."""
    batch = decode_batch(encode_batch(history.pods(exclusive_pod(jobs))))
    apply(batch)
    [pod] = batch.pods
    group = SolveGroup("g", (SolveGang("g", 1, (Role(kind_id(pod.class_id, pod.label_set), 1),)),))
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        state = placement.cluster.state
        state.refresh()
        [answer] = solve(state, [group])
        state.rollback(0)
        taken.append(round(1000 * (time.perf_counter() - started), 1))
        assert isinstance(answer, Placed), answer
    return taken


def selected(service: str, pods: int, count: int, own_labels: bool) -> dict[str, Any]:
    """One more pod has a selector that selects `pods` running pods."""
    history, apply, _, _ = follow(service, count)
    for start in range(0, pods, 1000):
        some = [
            pod_object(
                f"p{index}",
                node=f"n{index % count}",
                phase="Running",
                labels={"app": "train", **({"index": str(index)} if own_labels else {})},
            )
            for index in range(start, min(pods, start + 1000))
        ]
        apply(decode_batch(encode_batch(history.pods(*some))))
    pod = pod_object("one", affinity=affinity(away=[term({"matchLabels": {"app": "train"}}, topologyKey=RACK)]))
    started = time.perf_counter()
    batch = history.pods(pod)
    state_ms = 1000 * (time.perf_counter() - started)
    message = encode_batch(batch)
    decoded = decode_batch(message)
    started = time.perf_counter()
    apply(decoded)
    service_ms = 1000 * (time.perf_counter() - started)
    taken = state_ms if service == "cluster-state" else service_ms
    return {"milliseconds": round(taken, 1), "pods_sent": len(batch.pods), "bytes": message.ByteSize()}


def budgets(service: str, pods: int, there: int) -> dict[str, Any]:
    """One more PodDisruptionBudget in a namespace of many."""
    history = History()
    history.pods(*(pod_object(f"p{index}", labels={"app": f"a{index % there}"}) for index in range(pods)))
    for index in range(there):
        history.budgets(budget_object(f"b{index}", {"matchLabels": {"app": f"a{index}"}}))
    started = time.perf_counter()
    batch = history.budgets(budget_object("more", {"matchLabels": {"app": "a7"}}))
    return {"milliseconds": round(1000 * (time.perf_counter() - started), 1), "pods_sent": len(batch.pods)}


def main() -> None:
    asked = _arguments()
    if asked.only:
        scenario, service = asked.only.split("/")
        print(json.dumps(_scenario(scenario, service, asked)))
        return
    found: dict[str, Any] = {}
    for scenario in ("exclusive", "selected", "selected-own-labels"):
        for service in SERVICES:
            found[f"{scenario}/{service}"] = _in_process(f"{scenario}/{service}")
    found["budgets/cluster-state"] = _in_process("budgets/cluster-state")
    print(json.dumps(found, indent=2))


def _scenario(scenario: str, service: str, asked: argparse.Namespace) -> dict[str, Any]:
    if scenario == "exclusive":
        return exclusive(service, asked.jobs, asked.nodes)
    if scenario == "budgets":
        return budgets(service, 8000, 1000)
    return selected(service, asked.pods, asked.nodes, scenario == "selected-own-labels")


def _in_process(only: str) -> dict[str, Any]:
    command = [sys.executable, __file__, *sys.argv[1:], "--only", only]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return {"failed": result.stderr.strip().splitlines()[-1]}
    figures: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=5002)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--only", default="", help="one scenario and service, e.g. exclusive/placement")
    return parser.parse_args()


if __name__ == "__main__":
    main()
