"""Kubeconfigs for tests."""

import json
import sys
from pathlib import Path
from typing import Any

from muster.config.settings import KubeSettings


def write_kubeconfig(
    directory: Path, server: str, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None
) -> KubeSettings:
    """Write a kubeconfig for a server and user; returns settings with its path. JSON is valid YAML."""
    path = directory / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
                "users": [{"name": "u", "user": user or {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return KubeSettings(kubeconfig=path)


class Plugin:
    """An exec plugin that returns a given status and counts its runs."""

    def __init__(self, directory: Path) -> None:
        self._status, self._runs = directory / "status.json", directory / "runs"
        self._runs.touch()
        script = (
            "import json,pathlib,sys;"
            f"pathlib.Path({str(self._runs)!r}).open('a').write('x');"
            f"status=pathlib.Path({str(self._status)!r}).read_text();"
            "sys.exit('boom: secret') if not status else None;"
            "print(json.dumps({'apiVersion':'client.authentication.k8s.io/v1','kind':'ExecCredential',"
            "'status':json.loads(status)}))"
        )
        self.user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": ["-c", script],
                "interactiveMode": "Never",
            }
        }

    @property
    def runs(self) -> int:
        return len(self._runs.read_text())

    def answer(self, **status: str) -> None:
        self._status.write_text(json.dumps(status))

    def fail(self) -> None:
        self._status.write_text("")
