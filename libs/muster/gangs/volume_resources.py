"""Resources that stand for volumes: columns of nodes and requests of pod classes like cpu, so that every placement and
the ledger count them.

cluster-state adds them to nodes and to classes of pods with claims. The API server accepts none of these names in a
pod's requests, because they have no domain.
"""

from typing import Final

from muster.gangs.quoting import quoted

_ATTACHMENTS: Final = "attachable-volumes-csi-"
_PREFIXES: Final = (_ATTACHMENTS,)

UNLIMITED: Final = 2**31
"""Amount of a node without a limit. Pods request so little of it that it never ends, and sums over all nodes stay far
from the end of int64."""


def attachments(driver: str) -> str:
    """Volumes of a CSI driver that may be attached to a node; kube-scheduler has the same name."""
    return f"{_ATTACHMENTS}{driver}"


def is_volume_resource(resource: str) -> bool:
    """Whether cluster-state added the resource because of volumes."""
    return resource.startswith(_PREFIXES)


def filter_reason(resource: str) -> str:
    """Why a node has not enough of the resource for a pod; empty if it does not stand for volumes."""
    if resource.startswith(_ATTACHMENTS):
        return f"node(s) exceed max volume count of driver {_driver(resource)}"
    return ""


def in_words(resource: str, amount: int) -> str:
    """An amount in words; empty if the resource does not stand for volumes."""
    if resource.startswith(_ATTACHMENTS):
        return f"{amount} attachable volume{'s' if amount != 1 else ''} of driver {_driver(resource)}"
    return ""


def _driver(resource: str) -> str:
    return quoted(resource.removeprefix(_ATTACHMENTS))
