"""Runs the embedded API server until SIGTERM or SIGINT."""

import argparse
import asyncio
import contextlib
import os
import signal
from pathlib import Path

import uvloop

from muster.localcluster.apiserver import ApiServer
from muster.telemetry.logs import configure_logs


def main() -> None:
    options = _arguments()
    configure_logs("api-server", options.log_level, options.log_format)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    server = ApiServer(options.listen, allow_faults=options.allow_faults, history=options.history)
    url = await server.start()
    try:
        if options.kubeconfig_out:
            server.write_kubeconfig(options.kubeconfig_out)
        if options.ready_file:
            options.ready_file.write_text(url)
        if options.ready_fd is not None:
            with os.fdopen(options.ready_fd, "w") as ready:
                ready.write(f"{url}\n")
        await stopped.wait()
    finally:
        await server.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.apiserver", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--kubeconfig-out", type=Path, help="write a kubeconfig that leads here")
    parser.add_argument("--ready-file", type=Path, help="write the URL there once it serves")
    parser.add_argument("--ready-fd", type=int, help="write the URL to this file descriptor once it serves")
    parser.add_argument("--allow-faults", action="store_true", help="serve /muster-faults, for tests of clients")
    parser.add_argument("--history", type=int, default=16_384, help="changes per resource that a watch may be behind")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
