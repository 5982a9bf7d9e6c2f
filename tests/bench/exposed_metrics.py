"""Metrics that the services expose."""

import asyncio


async def metrics(address: str) -> dict[str, float]:
    """The values of metrics without labels."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    body = (await reader.read()).decode()
    writer.close()
    lines = (line.split() for line in body.partition("\r\n\r\n")[2].splitlines())
    return {line[0]: float(line[1]) for line in lines if len(line) >= 2 and line[0] != "#" and "{" not in line[0]}
