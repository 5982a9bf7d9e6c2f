"""`kubectl muster` as users run it: kubectl finds the installed plugin on the PATH."""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

_WAIT_SECONDS = 60


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str


def program(path: Path, text: str) -> Path:
    """An executable file with this text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def installed_plugin(directory: Path) -> Path:
    """A directory for the PATH with the plugin in it."""
    script = f'#!/bin/sh\nexec "{sys.executable}" -m muster.cli.kubectl "$@"\n'
    return program(directory / "bin" / "kubectl-muster", script).parent


async def kubectl_muster(directory: Path, *arguments: str, **environment: str) -> Ran:
    """Runs `kubectl muster ...` without the settings of this machine."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MUSTER_", "KUBECONFIG"))}
    clean["PATH"] = f"{installed_plugin(directory)}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "muster", *arguments),
        cwd=directory,
        env={**clean, "HOME": str(directory), "COLUMNS": "200", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), _WAIT_SECONDS)
    return Ran(process.returncode or 0, out.decode(), err.decode())
