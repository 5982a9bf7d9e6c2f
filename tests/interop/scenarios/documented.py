"""The scenario of the commands in docs/migration.md."""

from typing import Final

from builders.docs.pages import DOCS, block
from interop.command_line import shell
from interop.sandbox import Sandbox
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase

_PAGE: Final = DOCS / "migration.md"
_CPUS: Final = 4
"""Requests of all pods of each command."""


async def documented(box: Sandbox) -> None:
    """The command in [migration.md](migration.md#workloads-by-controller) creates a gang that starts whole, and
    nothing that waits.
    """
    command = block(_PAGE, box.kind.documented).text
    await box.nodes(_CPUS)
    await shell(box.cluster, box.namespace, command)
    try:
        await box.until(lambda: any(map(_is_complete, _gangs(box))), "the gang has started with all pods")
        await box.until(lambda: _all_run(box), "all pods run")
        [gang] = _gangs(box)
        first = next(record for record in box.cluster.records.history[gang.id] if record.seats)
        bound = sum(len(seat.pods) for seat in first.seats)
        assert bound == gang.minimum, f"{bound} of {gang.minimum} were bound first"
        assert not box.declaration_warnings(), f"warnings: {box.declaration_warnings()}"
    finally:
        await shell(box.cluster, box.namespace, command.replace("kubectl apply", "kubectl delete --wait=false"))


def _gangs(box: Sandbox) -> list[Gang]:
    return [each for each in box.coordinator_gangs() if each.dialect != "plain"]


def _is_complete(gang: Gang) -> bool:
    return gang.phase == Phase.PHASE_SATISFIED and gang.bound == gang.members == gang.minimum > 1


def _all_run(box: Sandbox) -> bool:
    pods = [pod for (namespace, _), pod in box.cluster.pods.items() if namespace == box.namespace]
    return all(pod["status"].get("phase") == "Running" for pod in pods)
