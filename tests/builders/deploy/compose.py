"""The compose file as processes on this machine.

Its commands run with the addresses of containers mapped to free ports, the
volume to a directory, and mounted files to those of the repository.
"""

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from muster.localcluster.etcd import program
from muster.localcluster.ports import free_port

ROOT = Path(__file__).parents[3]
VOLUME = "/run/muster"
_ADDRESS = re.compile(r"\b([a-z][a-z-]*|0\.0\.0\.0|127\.0\.0\.1):(\d+)\b")
_VARIABLE = re.compile(r"\$\{[A-Z_]+:([-+])([^}]*)\}")
_HERE = ("0.0.0.0", "127.0.0.1")
_ETCD = ("/usr/local/bin/etcd", "/usr/local/bin/etcdctl")


def read_compose() -> dict[str, Any]:
    """The file with Compose's defaults for unset variables."""
    text = _VARIABLE.sub(lambda found: found[2] if found[1] == "-" else "", (ROOT / "compose.yaml").read_text())
    read: dict[str, Any] = yaml.safe_load(text)
    return read


class ComposeProcesses:
    """The command of each container, as run on this machine."""

    def __init__(self, directory: Path) -> None:
        self.services: dict[str, Any] = read_compose()["services"]
        self._directory = directory
        self._ports: dict[tuple[str, str], int] = {}

    def address(self, service: str, port: int) -> str:
        """Address of a container's port on this machine."""
        return f"127.0.0.1:{self._ports.setdefault((service, str(port)), free_port())}"

    def argv(self, name: str) -> list[str]:
        service = self.services[name]
        return self._mapped(name, [*service.get("entrypoint", ["muster"]), *service["command"]])

    def healthcheck(self, name: str) -> list[str]:
        """The command of its health check; empty: it has none."""
        test = self.services[name].get("healthcheck", {}).get("test", [])
        return self._mapped(name, test[1:])

    def environment(self, name: str) -> dict[str, str]:
        return {
            key: self._text(name, str(value or "")) for key, value in self.services[name].get("environment", {}).items()
        }

    def _mapped(self, name: str, words: list[str]) -> list[str]:
        return [self._program(word) if at == 0 else self._text(name, word) for at, word in enumerate(words)]

    def _program(self, word: str) -> str:
        if word in _ETCD:
            return program(Path(word).name)
        return {"python3": sys.executable, "muster": str(Path(sys.executable).with_name("muster"))}[word]

    def _text(self, name: str, word: str) -> str:
        def here(found: re.Match[str]) -> str:
            if found[1] not in _HERE and found[1] not in self.services:
                raise AssertionError(f"{name} calls {found[0]}, which no container is")
            return self.address(name if found[1] in _HERE else found[1], int(found[2]))

        for volume in self.services[name].get("volumes", []):
            source, target = volume.split(":")[:2]
            if source.startswith("./") and word == target:
                return str(ROOT / source)
        for written in (VOLUME, "/var/lib/etcd"):
            word = word.replace(written, f"{self._directory}{written}")
        return _ADDRESS.sub(here, word)
