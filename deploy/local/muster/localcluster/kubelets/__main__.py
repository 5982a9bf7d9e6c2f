"""Runs simulated kubelets until SIGTERM or SIGINT."""

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

import uvloop

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.kubelets import Kubelets, simulated_nodes
from muster.telemetry.logs import configure_logs


def main() -> None:
    options = _arguments()
    configure_logs("kubelets", options.log_level)
    uvloop.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    session = await KubeSession.connect(KubeSettings(kubeconfig=options.kubeconfig))
    nodes = simulated_nodes(
        options.nodes,
        racks=options.racks,
        cpu=options.cpu,
        memory=options.memory,
        pods=options.pods,
        gpus=options.gpu,
    )
    running = asyncio.ensure_future(Kubelets(session, nodes, renew_seconds=options.renew_seconds).run())
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        await session.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.kubelets", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--racks", type=int, default=1, help="nodes are spread over racks by the label rack")
    parser.add_argument("--cpu", default="8", help="per node")
    parser.add_argument("--memory", default="32Gi", help="per node")
    parser.add_argument("--pods", type=int, default=110, help="most pods per node")
    parser.add_argument("--gpu", type=int, default=0, help="GPUs (nvidia.com/gpu) per node")
    parser.add_argument("--renew-seconds", type=float, default=10.0, help="how often a node renews its lease")
    parser.add_argument("--log-level", default="info")
    return parser.parse_args()


if __name__ == "__main__":
    main()
