"""Stand-in for the program spark-submit: creates the pod of a driver from the operator's arguments.

python -m interop.spark.submit --name NAME --conf KEY=VALUE ... FILE

A ConfigMap, which the pod mounts, has the executors that `interop.spark.drivers` creates when the driver runs. Only the
settings that matter to scheduling are read, with the names of Spark's documentation.
"""

import asyncio
import copy
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from muster.config.settings import KubeSettings
from muster.kube.session import ApiStatusError, KubeSession

JSON = dict[str, Any]

EXECUTORS: Final = "executors.json"
"""Key of the ConfigMap."""
VOLUME: Final = "spark-executors"
"""The driver's volume of the ConfigMap."""
_CALL_SECONDS: Final = 20.0


class Executors(msgspec.Struct, frozen=True):
    """The executors of a driver."""

    instances: int
    prefix: str
    """Of their names."""
    pod: JSON
    """Without its name and owner."""


def main() -> int:
    """Create the objects; returns the exit code."""
    try:
        asyncio.run(_submit(_settings(sys.argv[1:])))
    except ApiStatusError as error:
        print(f"{error}: AlreadyExists" if error.status == 409 else error, file=sys.stderr)
        return 1
    return 0


async def _submit(settings: Mapping[str, str]) -> None:
    namespace, name = settings["spark.kubernetes.namespace"], settings["spark.kubernetes.driver.pod.name"]
    submission = settings["spark.kubernetes.driver.label.sparkoperator.k8s.io/submission-id"]
    identity = {"spark-app-selector": f"spark-{submission}", "spark-app-name": settings["name"]}
    driver, executor = (_pod(settings, role, identity) for role in ("driver", "executor"))
    executor["metadata"]["ownerReferences"] = []  # the driver sets itself
    driver["metadata"]["name"] = name
    config_map = f"spark-drv-{submission}-conf-map"
    driver["spec"].setdefault("volumes", []).append({"name": VOLUME, "configMap": {"name": config_map}})
    executors = Executors(int(settings["spark.executor.instances"]), f"{settings['name']}-{submission[:8]}", executor)
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": config_map, "ownerReferences": driver["metadata"].get("ownerReferences", [])},
        "data": {EXECUTORS: msgspec.json.encode(executors).decode()},
    }
    session = await KubeSession.connect(KubeSettings())
    try:
        for plural, body in (("configmaps", configuration), ("pods", driver)):
            path = f"/api/v1/namespaces/{namespace}/{plural}"
            answer = await session.request("POST", path, body=msgspec.json.encode(body), timeout_seconds=_CALL_SECONDS)
            if answer.status >= 300:
                raise ApiStatusError.from_response(answer)
    finally:
        await session.close()


def _pod(settings: Mapping[str, str], role: str, identity: Mapping[str, str]) -> JSON:
    """The pod of a role: its template, with what the settings add."""
    template = yaml.safe_load(Path(settings[f"spark.kubernetes.{role}.podTemplateFile"]).read_text())
    pod: JSON = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
    metadata, spec = pod["metadata"], pod["spec"]
    for field in ("label", "annotation"):
        added = _below(settings, f"spark.kubernetes.{role}.{field}.")
        metadata[f"{field}s"] = (metadata.get(f"{field}s") or {}) | added
    metadata["labels"] |= {**identity, "spark-role": role}
    spec["restartPolicy"] = "Never"
    spec["nodeSelector"] = (spec.get("nodeSelector") or {}) | _below(settings, "spark.kubernetes.node.selector.")
    scheduler = settings.get(f"spark.kubernetes.{role}.scheduler.name", settings.get("spark.kubernetes.scheduler.name"))
    if scheduler:
        spec["schedulerName"] = scheduler
    name = settings[f"spark.kubernetes.{role}.podTemplateContainerName"]
    [container] = [each for each in spec["containers"] if each["name"] == name]
    container["image"] = settings["spark.kubernetes.container.image"]
    cores = settings.get(f"spark.kubernetes.{role}.request.cores", settings.get(f"spark.{role}.cores", "1"))
    container["resources"] = {"requests": {"cpu": cores, "memory": _memory(settings[f"spark.{role}.memory"])}}
    return pod


def _below(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def _memory(value: str) -> str:
    """Spark's unit of memory as Kubernetes writes it: "512m" are mebibytes."""
    return f"{value[:-1]}{value[-1].upper()}i"


def _settings(arguments: Sequence[str]) -> dict[str, str]:
    """All settings, and the name."""
    found = {}
    for option, value in itertools.pairwise(arguments):
        if option == "--conf":
            key, _, setting = value.partition("=")
            found[key] = setting
        elif option == "--name":
            found["name"] = value
    return found


if __name__ == "__main__":
    sys.exit(main())
