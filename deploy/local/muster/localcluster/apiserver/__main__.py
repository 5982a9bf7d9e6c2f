"""Runs the embedded API server until SIGTERM or SIGINT."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from muster.localcluster.apiserver import ApiServer
from muster.localcluster.apiserver.access.tokens import BadTokenFile, read_tokens
from muster.telemetry.logs import configure_logs


def main() -> None:
    options = _arguments()
    configure_logs("api-server", options.log_level)
    try:
        uvloop.run(_serve(options))
    except KeyboardInterrupt:
        pass
    except BadTokenFile as error:
        sys.exit(str(error))


async def _serve(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    server = ApiServer(
        options.listen,
        tokens=read_tokens(options.token_auth_file) if options.token_auth_file else None,
    )
    await server.start()
    try:
        if options.kubeconfig_out:
            server.write_kubeconfig(options.kubeconfig_out)
        await stopped.wait()
    finally:
        await server.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.apiserver", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--kubeconfig-out", type=Path, help="write a kubeconfig for this server")
    parser.add_argument("--token-auth-file", type=Path, help='tokens, a line each: TOKEN,USER,UID,"GROUP,GROUP"')
    parser.add_argument("--log-level", default="info")
    return parser.parse_args()


if __name__ == "__main__":
    main()
