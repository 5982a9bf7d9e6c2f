"""Rules of pods and priority classes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from muster.localcluster.apiserver.kinds import Rules
from muster.localcluster.apiserver.pod_defaults import add_default_tolerations, default_pod, new_pod_status
from muster.localcluster.apiserver.pod_types import check_pod_types
from muster.localcluster.apiserver.pod_validation import pod_spec_causes, pod_update_causes
from muster.localcluster.apiserver.status import Cause, forbidden
from muster.localcluster.apiserver.store import Object

if TYPE_CHECKING:
    from muster.localcluster.apiserver.cluster import Cluster

PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"


class PodRules(Rules):
    """Defaults, priority admission and validation of pods."""

    counts_generations = True

    def default(self, obj: Object) -> None:
        check_pod_types(obj)
        default_pod(obj)

    def admit(self, cluster: "Cluster", obj: Object) -> None:
        spec = obj["spec"]
        _admit_priority(cluster, obj["metadata"].get("name", ""), spec)
        add_default_tolerations(spec)
        obj["status"] = new_pod_status(spec)

    def validate(self, obj: Object) -> Iterable[Cause]:
        return pod_spec_causes(obj["spec"])

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        return pod_update_causes(new["spec"], old["spec"])


class PriorityClassRules(Rules):
    """Priority classes: at most one global default, and no user class with the system prefix or value."""

    counts_generations = True
    keeps_status_apart = False

    def default(self, obj: Object) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj.setdefault("value", 0)

    def validate(self, obj: Object) -> Iterable[Cause]:
        value, name = obj["value"], obj["metadata"]["name"]
        if not name.startswith("system-") and value > 1_000_000_000:
            message = "maximum allowed value of a user defined priority is 1000000000"
            yield Cause("FieldValueForbidden", f"Forbidden: {message}", "value")

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        if new["value"] != old["value"]:
            yield Cause("FieldValueForbidden", "Forbidden: may not be changed in an update.", "value")


def priority_class(cluster: "Cluster", name: str | None) -> Object | None:
    """The named class, or for an empty name the global default, or an empty object if there is none.

    None: there is no class of that name.
    """
    classes = cluster.store.collection(PRIORITY_CLASSES).records
    if name:
        return classes[name].object if name in classes else None
    defaults = [record.object for record in classes.values() if record.object.get("globalDefault")]
    return min(defaults, key=lambda each: each["value"]) if defaults else {}


def _admit_priority(cluster: "Cluster", pod: str, spec: Object) -> None:
    """Priority admission: set priority and preemption policy from the class."""
    name = spec.get("priorityClassName")
    chosen = priority_class(cluster, name)
    if chosen is None:
        raise forbidden("pods", "", pod, f"no PriorityClass with name {name} was found")
    if chosen:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    priority, policy = chosen.get("value", 0), chosen.get("preemptionPolicy", "PreemptLowerPriority")
    requested = spec.get("priority")
    if requested is not None and requested != priority:
        message = (
            f"the integer value of priority ({requested}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden("pods", "", pod, message)
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", policy)
