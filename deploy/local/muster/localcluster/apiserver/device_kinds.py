"""Kinds of resource.k8s.io: ResourceSlices, DeviceClasses, ResourceClaims and ResourceClaimTemplates.

Requests, selectors and devices are not validated, nor the devices of an allocation.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from muster.localcluster.apiserver.kinds import STATUS, Kind, Rules
from muster.localcluster.apiserver.status import Cause, duplicate, forbidden_value, invalid_value, required
from muster.localcluster.apiserver.store import Object

GROUP: Final = "resource.k8s.io"
CLAIMS: Final = f"resourceclaims.{GROUP}"
SLICES: Final = f"resourceslices.{GROUP}"
DEVICE_CLASSES: Final = f"deviceclasses.{GROUP}"
CLAIM_TEMPLATES: Final = f"resourceclaimtemplates.{GROUP}"

_VERSION: Final = "v1"
_MAX_USERS: Final = 256


class ClaimRules(Rules):
    """ResourceClaims: spec and allocation are immutable, but an allocation may be removed. Only allocated claims have
    users, and one that is being deleted gets no more.
    """

    checks_status = True
    status_changes_labels = False

    def validate(self, obj: Object) -> Iterable[Cause]:
        status = obj.get("status") or {}
        users = status.get("reservedFor") or ()
        yield from _user_causes(users)
        if users and not status.get("allocation"):
            yield forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set")

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        if new.get("spec") != old.get("spec"):
            yield invalid_value("spec", new.get("spec"), "field is immutable")
        after, before = new.get("status") or {}, old.get("status") or {}
        if after.get("allocation") and before.get("allocation") not in (None, after["allocation"]):
            yield invalid_value("status.allocation", after["allocation"], "field is immutable")
        if "deletionTimestamp" in new["metadata"]:
            known = before.get("reservedFor") or ()
            if any(each not in known for each in after.get("reservedFor") or ()):
                detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
                yield forbidden_value("status.reservedFor", detail)


class _Counted(Rules):
    counts_generations = True


class _Stored(Rules):
    pass


def kinds() -> list[Kind]:
    """All kinds of the group, in the order of discovery."""
    of_group = GROUP, _VERSION
    return [
        Kind(*of_group, "DeviceClass", "deviceclasses", namespaced=False, rules=_Counted()),
        Kind(*of_group, "ResourceClaim", "resourceclaims", subresources=(STATUS,), rules=ClaimRules()),
        Kind(*of_group, "ResourceClaimTemplate", "resourceclaimtemplates", rules=_Stored()),
        Kind(
            *of_group,
            "ResourceSlice",
            "resourceslices",
            namespaced=False,
            rules=_Counted(),
            selectable=("spec.nodeName", "spec.driver"),
        ),
    ]


def _user_causes(users: Sequence[Any]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, each in enumerate(users):
        at = f"status.reservedFor[{index}]"
        yield from (required(f"{at}.{field}") for field in ("resource", "name", "uid") if not each.get(field))
        if each.get("uid") in seen:
            yield duplicate(at, each["uid"])
        seen.add(each.get("uid", ""))
    if len(users) > _MAX_USERS:
        message = f"Too many: {len(users)}: must have at most {_MAX_USERS} items"
        yield Cause("FieldValueTooMany", message, "status.reservedFor")
