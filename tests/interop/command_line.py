"""Commands of a user, run against the control plane in the namespace of a scenario."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from builders.e2e.cluster import Cluster
from builders.e2e.kubectl_plugin import installed_plugin

_SECONDS: Final = 60.0


async def shell(cluster: Cluster, namespace: str, command: str) -> str:
    """Run a command line of bash with `kubectl` and `kubectl muster`; returns its output. Fails with it if the exit
    code is not 0.
    """
    assert cluster.stack.kubeconfig is not None
    configuration = msgspec.json.decode(cluster.stack.kubeconfig.read_bytes())
    for each in configuration["contexts"]:
        each["context"]["namespace"] = namespace
    with tempfile.TemporaryDirectory(prefix="muster-interop-") as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        kubeconfig.write_bytes(msgspec.json.encode(configuration))
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "MUSTER_COORDINATOR": cluster.stack.addresses["coordinator"],
            "PATH": f"{installed_plugin(Path(directory))}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "400",
        }
        process = await asyncio.create_subprocess_exec(
            *("bash", "-e", "-o", "pipefail", "-c", command),
            env=os.environ | environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await asyncio.wait_for(process.communicate(), _SECONDS))[0].decode()
    assert process.returncode == 0, f"{command.splitlines()[0]}: {output}"
    return output
