"""ResourceClaims of PodGroups: the entries of pods that mean them, and their names."""

from muster.localcluster.apiserver.pod_groups import GROUP
from muster.localcluster.apiserver.store import Object, key_of

OWNER_VERSION = f"{GROUP}/v1beta1"


def group_key(pod: Object) -> str | None:
    """The key of the PodGroup that a pod names; None: it names none."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return key_of(pod["metadata"]["namespace"], name) if name else None


def group_entries(group: Object) -> list[Object]:
    """The entries of a PodGroup's spec.resourceClaims."""
    return group["spec"].get("resourceClaims") or []


def is_of_group(group: Object, entry: Object) -> bool:
    """Whether an entry of a pod's resourceClaims means the claim of the PodGroup: both are equal."""
    return entry in group_entries(group)


def group_claim_name(group: Object, entry: Object) -> str:
    """The name of a PodGroup's claim; empty: it was not created from its template yet."""
    if entry.get("resourceClaimName"):
        return str(entry["resourceClaimName"])
    statuses = (group.get("status") or {}).get("resourceClaimStatuses") or ()
    return next((str(each.get("resourceClaimName") or "") for each in statuses if each["name"] == entry["name"]), "")


def is_group(user: Object) -> bool:
    """Whether an entry of a claim's status.reservedFor is a PodGroup."""
    return user.get("apiGroup") == GROUP and user.get("resource") == "podgroups"
