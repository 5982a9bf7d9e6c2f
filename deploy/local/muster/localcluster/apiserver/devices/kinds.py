"""Kinds of resource.k8s.io: device classes, claims, claim templates, slices and taint rules."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.devices.allocation_validation import allocated, key_of, status_causes
from muster.localcluster.apiserver.devices.claim_validation import claim_spec_causes, class_spec_causes, request_names
from muster.localcluster.apiserver.devices.slice_types import (
    Slice,
    SliceSpec,
)
from muster.localcluster.apiserver.devices.slice_validation import slice_spec_causes
from muster.localcluster.apiserver.devices.taint_rules import TaintRuleRules
from muster.localcluster.apiserver.devices.types import (
    Claim,
    ClaimSpec,
    ClaimStatus,
    ClassSpec,
    DeviceClass,
    Template,
    TemplateSpec,
    read,
    unreadable,
)
from muster.localcluster.apiserver.kinds import STATUS, Kind, Rules
from muster.localcluster.apiserver.quantity_format import quantities
from muster.localcluster.apiserver.status import Cause, forbidden_value, invalid, invalid_value
from muster.localcluster.apiserver.store import Object
from muster.localcluster.apiserver.tables import TABLES

if TYPE_CHECKING:
    from muster.localcluster.apiserver.cluster import Cluster

GROUP: Final = "resource.k8s.io"
CLAIMS: Final = f"resourceclaims.{GROUP}"
TEMPLATES: Final = f"resourceclaimtemplates.{GROUP}"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Finalizer of allocated claims."""

_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_NO_ADMIN_ACCESS: Final = (
    f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
)
_IMMUTABLE: Final = "field is immutable"


class ClaimRules(Rules):
    """Claims: the spec and an existing allocation are immutable; users are only reserved for allocated claims."""

    empty_status: ClassVar = {}
    checks_status = True
    status_changes_labels = False

    def default(self, obj: Object) -> None:
        read(obj, Claim)
        _default_claim_spec(_member(obj, "spec"))

    def admit(self, cluster: "Cluster", obj: Object) -> None:
        _check_admin_access(cluster, obj, obj["spec"], "spec")

    def validate(self, obj: Object) -> Iterable[Cause]:
        return claim_spec_causes(read(obj, Claim).spec or ClaimSpec(), "spec")

    def prepare_update(self, new: Object, old: Object) -> None:
        """Drop the statuses of devices that are deallocated."""
        status = new.get("status") or {}
        gone = allocated(_status(old).allocation) - allocated(_status(new).allocation)
        if gone and status.get("devices"):
            kept = [
                raw
                for raw, each in zip(status["devices"], _status(new).devices or (), strict=True)
                if key_of(each) not in gone
            ]
            new["status"] = {**status, "devices": kept}

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        if new["spec"] != old["spec"]:
            yield invalid_value("spec", new["spec"], _IMMUTABLE)
        after, before = new.get("status") or {}, old.get("status") or {}
        if after == before:
            return
        if before.get("allocation") and after.get("allocation") and before["allocation"] != after["allocation"]:
            yield invalid_value("status.allocation", after["allocation"], _IMMUTABLE)
        names = request_names((read(new, Claim).spec or ClaimSpec()).devices)
        is_deleted = "deletionTimestamp" in old["metadata"]
        yield from status_causes(_status(new), _status(old), names, is_deleted=is_deleted)


class TemplateRules(Rules):
    """Claim templates: immutable, with the defaults of claims."""

    def default(self, obj: Object) -> None:
        read(obj, Template)
        _default_claim_spec(_member(_member(obj, "spec"), "spec"))

    def admit(self, cluster: "Cluster", obj: Object) -> None:
        _check_admin_access(cluster, obj, obj["spec"]["spec"], "spec.spec")

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = (read(obj, Template).spec or TemplateSpec()).spec or ClaimSpec()
        return claim_spec_causes(spec, "spec.spec")

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        if new["spec"] != old["spec"]:
            yield invalid_value("spec", new["spec"], _IMMUTABLE)


class DeviceClassRules(Rules):
    """Device classes: selectors compile."""

    counts_generations = True

    def default(self, obj: Object) -> None:
        read(obj, DeviceClass)
        _member(obj, "spec")

    def validate(self, obj: Object) -> Iterable[Cause]:
        return class_spec_causes(read(obj, DeviceClass).spec or ClassSpec(), "spec")


class SliceRules(Rules):
    """Slices: driver, pool and node are immutable."""

    counts_generations = True

    def default(self, obj: Object) -> None:
        read(obj, Slice)
        spec = _member(obj, "spec")
        _member(spec, "pool").setdefault("generation", 0)
        try:
            for device in spec.get("devices") or ():
                for each in (device.get("capacity") or {}).values():
                    _make_canonical(each)
                for consumed in device.get("consumesCounters") or ():
                    _make_counters_canonical(consumed)
                for taint in device.get("taints") or ():
                    taint.setdefault("timeAdded", now_text())
            for counter_set in spec.get("sharedCounters") or ():
                _make_counters_canonical(counter_set)
        except ValueError as error:
            raise unreadable(obj, str(error)) from error

    def validate(self, obj: Object) -> Iterable[Cause]:
        return slice_spec_causes(read(obj, Slice).spec or SliceSpec(), "spec")

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        after, before = new["spec"], old["spec"]
        pairs = [(name, after.get(name), before.get(name)) for name in ("driver", "nodeName")]
        pairs.append(("pool.name", after["pool"].get("name"), before["pool"].get("name")))
        for name, value, previous in pairs:
            if value != previous:
                yield invalid_value(f"spec.{name}", value, _IMMUTABLE)


def kinds() -> list[Kind]:
    """All kinds of this module."""
    return [
        _kind("DeviceClass", "deviceclasses", DeviceClassRules(), namespaced=False),
        _kind("ResourceClaim", "resourceclaims", ClaimRules(), subresources=(STATUS,)),
        _kind("ResourceClaimTemplate", "resourceclaimtemplates", TemplateRules()),
        _kind(
            "ResourceSlice",
            "resourceslices",
            SliceRules(),
            namespaced=False,
            selectable=("spec.nodeName", "spec.driver"),
        ),
        _kind(
            "DeviceTaintRule",
            "devicetaintrules",
            TaintRuleRules(),
            version="v1beta2",
            namespaced=False,
            subresources=(STATUS,),
        ),
    ]


def _kind(name: str, plural: str, rules: Rules, *, version: str = "v1", **options: Any) -> Kind:
    return Kind(GROUP, version, name, plural, rules=rules, table=TABLES.get(f"{plural}.{GROUP}"), **options)


def _member(obj: Object, name: str) -> Object:
    """The named member, which is created if it is missing or null."""
    if obj.get(name) is None:
        obj[name] = {}
    return obj[name]  # type: ignore[no-any-return]


def _default_claim_spec(spec: Object) -> None:
    for request in _member(spec, "devices").get("requests") or ():
        for each in _exact_requests(request):
            if not each.get("allocationMode"):
                each["allocationMode"] = "ExactCount"
            if each["allocationMode"] == "ExactCount" and not each.get("count"):
                each["count"] = 1
            for toleration in each.get("tolerations") or ():
                if not toleration.get("operator"):
                    toleration["operator"] = "Equal"


def _exact_requests(request: Object) -> Iterator[Object]:
    """The request itself, or its alternatives."""
    if request.get("exactly") is not None:
        yield request["exactly"]
    yield from request.get("firstAvailable") or ()


def _check_admin_access(cluster: "Cluster", obj: Object, spec: Object, field: str) -> None:
    """Raises StatusError 422 for a request of admin access in a namespace that does not allow it."""
    namespace = cluster.store.get("namespaces", obj["metadata"]["namespace"])
    labels = (namespace.metadata.get("labels") if namespace is not None else None) or {}
    if labels.get(_ADMIN_LABEL) == "true":
        return
    causes = [
        forbidden_value(f"{field}.devices.requests[{index}].exactly.adminAccess", _NO_ADMIN_ACCESS)
        for index, request in enumerate(spec["devices"].get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    ]
    if causes:
        raise invalid(obj["kind"], GROUP, obj["metadata"].get("name", ""), causes)


def _status(obj: Object) -> ClaimStatus:
    return read(obj, Claim).status or ClaimStatus()


def _make_counters_canonical(counter_set: Object) -> None:
    for each in (counter_set.get("counters") or {}).values():
        _make_canonical(each)


def _make_canonical(amount: Object) -> None:
    """Raises ValueError."""
    amount |= quantities({"value": amount["value"]})
