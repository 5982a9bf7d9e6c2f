"""Trouble without end for a whole Muster under load, two of every service and three members of etcd; prints figures.

python tests/chaos/run.py [--seconds 1800] [--seed N]

Every process is killed, stopped and frozen, alone and together, etcd loses its leader, its quorum and all members, the
API server goes away, answers 429 and 500 and breaks watches; meanwhile gangs of every kind come and go. Exits with 1 if
an invariant is violated: see tests/builders/e2e/invariants.py and chaos/traffic.py. The same seed strikes the same
blows in the same order; what they meet differs.
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

from chaos.play import Play, ground


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long blows fall; it settles afterwards")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--directory", type=Path, help="where logs and etcd's files are kept; default: nowhere")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # kubelets run here
    say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="muster-chaos-") as files:
        violated = uvloop.run(_run(options.directory or Path(files), options.seconds, options.seed))
    sys.exit(1 if violated else 0)


async def _run(directory: Path, seconds: float, seed: int) -> bool:
    """Play and print the figures; whether anything was violated."""
    async with ground(directory) as cluster:
        told = await Play(cluster, seed, say).run(seconds)
        print(json.dumps(told.figures(), indent=2), flush=True)  # now: what did not settle is judged again at the end
        return bool(told.violations)


def say(text: str) -> None:
    """Progress, for people."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
