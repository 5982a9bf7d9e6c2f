"""Process 1 of a node: mounts the node's own directories over those of the machine, and reaps orphans.

python node_init.py DIRECTORY NAME. Everything in the node ends with this process.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

READY: Final = "ready"
"""Name of a file in DIRECTORY that exists once everything is mounted."""
OWN: Final = (
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/lib/cni",
    "/var/lib/volumes",
    "/var/log/pods",
    "/var/log/containers",
    "/run/containerd",
    "/run/netns",
    "/etc/cni/net.d",
)
"""Directories of which each node has its own."""


def main() -> None:
    directory, name = Path(sys.argv[1]), sys.argv[2]
    for path in OWN:
        own = directory / "root" / path.removeprefix("/")
        own.mkdir(parents=True, exist_ok=True)
        Path(path).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", str(own), path)
        _run("mount", "--make-shared", path)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _run("hostname", name)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    (directory / READY).touch()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.pause()  # orphans interrupt it by SIGCHLD


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, lambda *_: None)
    main()
