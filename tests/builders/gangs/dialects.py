"""The same gang in every dialect."""

from dataclasses import dataclass
from typing import Any, Final

from builders.gangs.gang import Dialect
from builders.gangs.manifests import SCHEDULER, Workload, gang
from builders.gangs.queue_jobs import queue_job, template
from builders.gangs.sakkara_manifests import group

JSON = dict[str, Any]

_MINIMUM_FIELDS: Final[dict[Dialect, str]] = {
    "annotations": "min-available",
    "koordinator": "minMember",
    "lightweight": "min-available",
    "coscheduling": "minMember",
    "kube-batch": "minMember",
    "volcano": "minMember",
    "batch": "group-pod-num",
    "native": "minCount",
    "kueue": "pod-group-total-count",
}
DIALECTS: Final = (*_MINIMUM_FIELDS, "kube-arbitrator", "sakkara")
"""Every way to declare a gang."""


@dataclass(frozen=True)
class DeclaredGang:
    """The manifests of a gang, in the order of their creation, and its id."""

    id: str
    objects: tuple[JSON, ...]
    term: str
    """Part of the term that `muster explain` quotes."""

    @property
    def pods(self) -> tuple[JSON, ...]:
        """The pod manifests; none if a controller creates the pods."""
        return tuple(each for each in self.objects if each["kind"] == "Pod")


def declared_in(
    dialect: str, namespace: str, name: str, size: int, where: dict[str, str], *, native_version: str
) -> DeclaredGang:
    """Returns a gang of `size` pods of 1 cpu that must start together, on nodes with these labels."""
    if dialect == "kube-arbitrator":
        return _queue_job(namespace, name, size, where)
    if dialect == "sakkara":
        built: Workload = group(name).asking_levels(node={"type": "pack"})
        minimum = "size"
    else:
        [(known, minimum)] = [item for item in _MINIMUM_FIELDS.items() if item[0] == dialect]
        built = gang(name).declared_by(known).of_version(native_version if known == "native" else "")
    built = built.of(size).asking(cpu=1).in_namespace(namespace).on_nodes(**where)
    definition = built.definition()
    return DeclaredGang(built.id, (*([definition] if definition else []), *built.pods()), f"{minimum}: {size}")


def _queue_job(namespace: str, name: str, size: int, where: dict[str, str]) -> DeclaredGang:
    task = size, template(labels={"job": name}, schedulerName=SCHEDULER, nodeSelector=where)
    job = queue_job(name, task, minimum=size, namespace=namespace, selector={"matchLabels": {"job": name}})
    return DeclaredGang(f"kube-arbitrator/{namespace}/QueueJob.{name}", (job,), f"minAvailable: {size}")
