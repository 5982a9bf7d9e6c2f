"""Runs simulated kubelets until SIGTERM or SIGINT."""

import argparse
import asyncio
import contextlib
import signal
import tempfile
from pathlib import Path

import uvloop
import yaml

from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.kubelets import Kubelets, simulated_nodes
from muster.telemetry.logs import configure_logs


def main() -> None:
    options = _arguments()
    configure_logs("kubelets", options.log_level, options.log_format)
    uvloop.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = options.kubeconfig
        if options.server:
            kubeconfig = Path(directory) / "kubeconfig"
            kubeconfig.write_text(_kubeconfig_of(options.server))
        session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
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


def _kubeconfig_of(server: str) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": server}}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        "current-context": "local",
    }
    return yaml.safe_dump(config)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.kubelets", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", help="URL of an API server that needs no credentials")
    where.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--racks", type=int, default=1, help="nodes are spread over racks by the label rack")
    parser.add_argument("--cpu", default="8", help="per node")
    parser.add_argument("--memory", default="32Gi", help="per node")
    parser.add_argument("--pods", type=int, default=110, help="most pods per node")
    parser.add_argument("--gpu", type=int, default=0, help="GPUs (nvidia.com/gpu) per node")
    parser.add_argument("--renew-seconds", type=float, default=10.0, help="how often a node renews its lease")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
