"""Workloads of Kueue, as they are after admission."""

from typing import Any, Final

from builders.gangs.open_kinds import open_kind

Object = dict[str, Any]

WORKLOAD_KIND: Final[Object] = open_kind("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")


def admitted(name: str, namespace: str, *pods: int) -> Object:
    """Returns a Workload with this many admitted pods of each pod set."""
    assignments = [{"name": f"set-{index}", "count": count} for index, count in enumerate(pods)]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"active": True},
        "status": {"admission": {"clusterQueue": "research", "podSetAssignments": assignments}},
    }
