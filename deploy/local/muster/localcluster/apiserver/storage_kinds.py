"""Rules of PersistentVolumes, PersistentVolumeClaims and StorageClasses."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final

from muster.localcluster.apiserver.kinds import Rules
from muster.localcluster.apiserver.status import Cause, forbidden_value, not_supported, required
from muster.localcluster.apiserver.store import Object

if TYPE_CHECKING:
    from muster.localcluster.apiserver.cluster import Cluster

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
CLASSES: Final = "storageclasses.storage.k8s.io"

IMMEDIATE: Final = "Immediate"
DELAYED: Final = "WaitForFirstConsumer"

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_RECLAIM: Final = ("Delete", "Recycle", "Retain")


class StorageClassRules(Rules):
    """Storage classes: volumeBindingMode defaults to Immediate, reclaimPolicy to Delete."""

    keeps_status_apart = False

    def default(self, obj: Object) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", IMMEDIATE)

    def validate(self, obj: Object) -> Iterable[Cause]:
        if not obj.get("provisioner"):
            yield required("provisioner")
        if obj["volumeBindingMode"] not in (IMMEDIATE, DELAYED):
            yield not_supported("volumeBindingMode", obj["volumeBindingMode"], (IMMEDIATE, DELAYED))
        if obj["reclaimPolicy"] not in ("Delete", "Retain"):
            yield not_supported("reclaimPolicy", obj["reclaimPolicy"], ("Delete", "Retain"))

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        for field in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
            if new.get(field) != old.get(field):
                yield forbidden_value(field, "updates to this field are forbidden.")


class ClaimRules(Rules):
    """Claims: pending at first, with the default class if they name none; the spec is immutable."""

    empty_status: ClassVar = {"phase": "Pending"}

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def admit(self, cluster: "Cluster", obj: Object) -> None:
        if obj["spec"].get("storageClassName") is None:
            classes = cluster.store.collection(CLASSES).records.values()
            defaults = [
                each for each in classes if (each.metadata.get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
            ]
            if defaults:
                newest = max(defaults, key=lambda each: (each.metadata["creationTimestamp"], each.key))
                obj["spec"]["storageClassName"] = newest.key

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        yield from _access_modes(spec)
        if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
            yield required("spec.resources[storage]")

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        free = ["resources", "volumeAttributesClassName"]
        free += [field for field in ("volumeName", "storageClassName") if old["spec"].get(field) is None]
        if _without(new["spec"], free) != _without(old["spec"], free):
            mutable = "resources.requests and volumeAttributesClassName for bound claims"
            yield forbidden_value("spec", f"spec is immutable after creation except {mutable}")


class VolumeRules(Rules):
    """Volumes: persistentVolumeReclaimPolicy defaults to Retain."""

    empty_status: ClassVar = {"phase": "Pending"}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        yield from _access_modes(spec)
        if "storage" not in (spec.get("capacity") or {}):
            yield required("spec.capacity[storage]")
        if spec["persistentVolumeReclaimPolicy"] not in _RECLAIM:
            field = "spec.persistentVolumeReclaimPolicy"
            yield not_supported(field, spec["persistentVolumeReclaimPolicy"], _RECLAIM)


def _access_modes(spec: Object) -> Iterable[Cause]:
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _MODES:
            yield not_supported("spec.accessModes", mode, _MODES)


def _without(spec: Object, fields: Iterable[str]) -> Object:
    return {name: value for name, value in spec.items() if name not in fields}
