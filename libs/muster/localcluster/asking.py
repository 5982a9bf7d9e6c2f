"""Asks once whether something serves, for healthchecks of containers: exit status 0 if it does, 1 if not.

python -m muster.localcluster.asking grpc HOST:PORT
python -m muster.localcluster.asking http HOST:PORT PATH
"""

import argparse
import asyncio
import sys

from muster.localcluster.probes import Probe, grpc_serving, http_ready


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m muster.localcluster.asking")
    kinds = parser.add_subparsers(dest="kind", required=True)
    by_grpc = kinds.add_parser("grpc", help="the gRPC health service says SERVING")
    by_http = kinds.add_parser("http", help="GET is answered with status 200")
    for each in (by_grpc, by_http):
        each.add_argument("address", help="HOST:PORT")
    by_http.add_argument("path")
    options = parser.parse_args()
    probe = grpc_serving(options.address) if options.kind == "grpc" else http_ready(options.address, options.path)
    sys.exit(0 if asyncio.run(_ask(probe)) else 1)


async def _ask(probe: Probe) -> bool:
    return await probe()


if __name__ == "__main__":
    main()
