"""Kubeconfig files."""

import os
from pathlib import Path
from typing import Any, Final

import yaml

_NAME: Final = "muster-local"
_ONLY_FOR_OWNER: Final = 0o600


def write_kubeconfig(path: Path, server: str, token: str) -> None:
    """Write a kubeconfig atomically, readable by its owner only since it contains the token."""
    named: dict[str, Any] = {"name": _NAME}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [named | {"cluster": {"server": server}}],
        "users": [named | {"user": {"token": token} if token else {}}],
        "contexts": [named | {"context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_FOR_OWNER), "w") as file:
        yaml.safe_dump(config, file, sort_keys=False)
    partial.replace(path)
