"""Decides whether a Volcano PodGroup without pods is Muster's: its Job names the scheduler of the pods to come."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from muster.dialects.definitions import Owner
from muster.kube.paths import object_path
from muster.lifecycle.object_client import ObjectClient

_GROUP: Final = "batch.volcano.sh"


def is_volcano_job(owner: Owner | None) -> bool:
    """Returns whether the owner is a Job of Volcano, which creates its pods when its PodGroup has been admitted."""
    return owner is not None and owner.kind == "Job" and owner.api_version.partition("/")[0] == _GROUP


async def is_ours(client: ObjectClient, namespace: str, owner: Owner, scheduler_names: Collection[str]) -> bool:
    """Returns whether Muster schedules pods of the Job. Raises ApiStatusError, KubeUnreachable."""
    job = await client.get(object_path(owner.api_version, "jobs", namespace, owner.name))
    return job is not None and any(name in scheduler_names for name in _scheduler_names(job))


def _scheduler_names(job: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the scheduler name of each task: that of its template, else that of the Job."""
    spec = _part(job, "spec")
    tasks = spec.get("tasks")
    for task in tasks if isinstance(tasks, list) else []:
        own = _part(_part(_part({"task": task}, "task"), "template"), "spec").get("schedulerName")
        yield own or spec.get("schedulerName")


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}
