"""Client of the gRPC health service: exit status 0 if a server is SERVING, else 1, for healthchecks of containers.

python -m muster.rpc.health_probe HOST:PORT
"""

import argparse
import asyncio
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_TIMEOUT_SECONDS = 2.0


async def is_serving(address: str) -> bool:
    """Whether the server as a whole answers SERVING within 2 s, in plain text."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m muster.rpc.health_probe")
    parser.add_argument("address", help="HOST:PORT")
    sys.exit(0 if asyncio.run(is_serving(parser.parse_args().address)) else 1)


if __name__ == "__main__":
    main()
