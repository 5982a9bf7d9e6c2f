"""A process with running calls can start other processes."""

import asyncio
import subprocess
import sys

_STARTS = """
import asyncio, os
import uvloop
import muster.cli.main
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer
from muster.config.settings import PLAIN_TEXT
from grpc_health.v1 import health_pb2, health_pb2_grpc

async def main():
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "test")
    channel = open_channel(f"127.0.0.1:{await server.start()}")
    stub = health_pb2_grpc.HealthStub(channel)

    async def call():
        while True:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)

    calls = [asyncio.create_task(call()) for _ in range(4)]
    ends = set()
    for _ in range(20):
        children = await asyncio.gather(*(asyncio.create_subprocess_exec("true") for _ in range(10)))
        ends |= {await child.wait() for child in children}
    print(ends, flush=True)
    os._exit(0)

uvloop.run(main())
"""


async def test_two_hundred_processes_all_start() -> None:
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _STARTS], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["{0}"], done.stderr
