"""Runs simulated kubelets until SIGTERM or SIGINT."""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import uvloop

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.kubelets import Kubelets, SimulatedNode, simulated_nodes
from muster.localcluster.kubelets.devices.options import BadDevices, parse_devices
from muster.telemetry.logs import configure_logs


def main() -> None:
    options = _arguments()
    try:
        nodes = simulated_nodes(
            options.nodes,
            racks=options.racks,
            cpu=options.cpu,
            memory=options.memory,
            pods=options.pods,
            gpus=options.gpu,
            devices=[parse_devices(text) for text in options.devices],
        )
    except BadDevices as error:
        sys.exit(f"--devices: {error}")
    configure_logs("kubelets", options.log_level)
    uvloop.run(_run(options, nodes))


async def _run(options: argparse.Namespace, nodes: list[SimulatedNode]) -> None:
    session = await KubeSession.connect(KubeSettings(kubeconfig=options.kubeconfig))
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
    parser.add_argument(
        "--devices",
        action="append",
        default=[],
        metavar="KIND:CARDS@FIRST-LAST",
        help="GPUs as devices of dynamic resource allocation, on the nodes with these indices, e.g. gpu:8@0-3; kinds: "
        "gpu, mig (with partitions), nvlink (every four nodes are an NVLink domain); may be repeated",
    )
    parser.add_argument("--renew-seconds", type=float, default=10.0, help="how often a node renews its lease")
    parser.add_argument("--log-level", default="info")
    return parser.parse_args()


if __name__ == "__main__":
    main()
