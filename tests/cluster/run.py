"""`make cluster`: a Kubernetes cluster with three nodes on this machine, until Ctrl-C.

python tests/cluster/run.py DIRECTORY IMAGES
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.real_cluster import CommandFailed, running_cluster
from cluster.requirements import missing
from interop.control_plane import NotBuilt
from muster.localcluster.child_process import ChildDied


async def _main(directory: Path, images: Path) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with running_cluster(directory, images) as cluster:
        print(await cluster.kubectl("get", "nodes", "-o", "wide"))
        print(
            f"In another terminal:\n\n  export KUBECONFIG={cluster.kubeconfig}\n"
            "  helm install muster deploy/helm/muster --namespace muster-system --create-namespace\n\n"
            "The image muster:0.1.0 of this checkout is on every node. Ctrl-C stops everything.",
            flush=True,
        )
        await stopping.wait()


def main() -> int:
    """Parse the command line and run; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("images", type=Path)
    options = parser.parse_args()
    if reason := missing():
        print(f"no cluster here: {reason}", file=sys.stderr)
        return 1
    try:
        asyncio.run(_main(options.directory, options.images))
    except (NotBuilt, ChildDied, CommandFailed, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
