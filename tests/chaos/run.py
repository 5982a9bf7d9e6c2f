"""Runs faults against a complete Muster under load, with two replicas of every service and three etcd members.

python tests/chaos/run.py [--seconds 1800] [--seed N]

Every process is killed, stopped and frozen, alone and together; etcd loses its leader, its quorum and all members; the
API server is unavailable, answers 429 and 500 and breaks watches. Meanwhile gangs of every kind are created and
deleted. Prints the result as JSON. Exits with 1 if an invariant is violated: see tests/builders/e2e/invariants.py and
chaos/traffic.py. The same seed injects the same faults in the same order, but not at the same state of the cluster.
"""

import argparse
import json
import logging
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's core writes a line whenever a process is started
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see muster.cli.main

import structlog
import uvloop

from chaos.chaos_run import ChaosRun, chaos_cluster


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to inject faults")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--directory", type=Path, help="where logs and etcd's files are kept; default: nowhere")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # kubelets run here
    say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="muster-chaos-") as files:
        violated = uvloop.run(_run(options.directory or Path(files), options.seconds, options.seed))
    sys.exit(1 if violated else 0)


async def _run(directory: Path, seconds: float, seed: int) -> bool:
    """ChaosRun and print the figures; whether anything was violated."""
    async with chaos_cluster(directory) as cluster:
        result = await ChaosRun(cluster, seed, say).run(seconds)
        print(
            json.dumps(result.figures(), indent=2), flush=True
        )  # now: leaving the cluster checks the invariants again and may raise
        return bool(result.violations)


def say(text: str) -> None:
    """Prints progress to stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
