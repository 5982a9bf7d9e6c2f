"""Resources that stand for volumes and devices: columns of nodes and requests of pod classes like cpu, so that every
placement and the ledger count them.

cluster-state adds them to nodes and to classes of pods with claims. The API server accepts none of these names in a
pod's requests, because they have no domain.
"""

from typing import Final

from muster.gangs.quoting import quoted

_ATTACHMENTS: Final = "attachable-volumes-csi-"
_CAPACITY: Final = "storage-capacity-"
_STATIC: Final = "static-volumes-"
_DEVICES: Final = "devices-"
_DEVICE_CLAIMS: Final = "device-claims-"
_PREFIXES: Final = (_ATTACHMENTS, _CAPACITY, _STATIC, _DEVICES, _DEVICE_CLAIMS)
_VOLUME_SIZE: Final = "volume-size.muster.dev/"

UNLIMITED: Final = 2**31
"""Amount of a node without a limit. Pods request so little of it that it never ends, and sums over all nodes stay far
from the end of int64."""


def attachments(driver: str) -> str:
    """Volumes of a CSI driver that may be attached to a node; kube-scheduler has the same name."""
    return f"{_ATTACHMENTS}{driver}"


def storage_capacity(storage_class: str) -> str:
    """Bytes of volumes that a storage class can provision for a node."""
    return f"{_CAPACITY}{storage_class}"


def volume_size(storage_class: str) -> str:
    """Key of a label that cluster-state adds to nodes: bytes of the largest volume that the class can provision."""
    return f"{_VOLUME_SIZE}{storage_class}"


def static_volumes(storage_class: str, volume_mode: str, access_mode: str, least_bytes: int) -> str:
    """Free volumes of a class without provisioner that a node can use, with these modes and at least this size."""
    return f"{_STATIC}{volume_mode}-{access_mode}-{least_bytes}-{storage_class}"


def devices(device_class: str, selection: str = "") -> str:
    """Free devices of a DeviceClass that a node can use. `selection`: hash, in hexadecimal, of further selectors and of
    tolerations; empty: without any.
    """
    return f"{_DEVICES}{selection}-{device_class}"


def device_claims(device_class: str, claims: str) -> str:
    """Pods whose ResourceClaims can be allocated together on a node, as many at the same time. `claims`: hash of their
    requests, in hexadecimal; `device_class`: that of the first one.
    """
    return f"{_DEVICE_CLAIMS}{claims}-{device_class}"


def is_device_resource(resource: str) -> bool:
    """Whether the resource stands for devices."""
    return resource.startswith((_DEVICES, _DEVICE_CLAIMS))


def is_searched(resource: str) -> bool:
    """Whether its amount is the result of a search, because it stands for claims together."""
    return resource.startswith(_DEVICE_CLAIMS)


def is_selection(resource: str) -> bool:
    """Whether it stands for devices that selectors and tolerations of a request select, not for a whole class."""
    return resource.startswith(_DEVICES) and not resource.startswith(f"{_DEVICES}-")


def is_static(resource: str) -> bool:
    """Whether the resource stands for static volumes."""
    return resource.startswith(_STATIC)


def is_storage_capacity(resource: str) -> bool:
    """Whether the resource stands for storage capacity, which ends when a volume is provisioned, although the pod that
    requests it may still wait for the volume.
    """
    return resource.startswith(_CAPACITY)


def is_counted_resource(resource: str) -> bool:
    """Whether cluster-state added the resource because of volumes."""
    return resource.startswith(_PREFIXES)


def filter_reason(resource: str) -> str:
    """Why a node has not enough of the resource for a pod; empty if it stands neither for volumes nor for devices."""
    if resource.startswith(_ATTACHMENTS):
        return f"node(s) exceed max volume count of driver {_name(resource, _ATTACHMENTS)}"
    if resource.startswith(_CAPACITY):
        return f"node(s) did not have enough free storage of storage class {_name(resource, _CAPACITY)}"
    if resource.startswith(_STATIC):
        least, storage_class = _parts(resource)
        return f"node(s) have no free volume of storage class {storage_class} of at least {least}"
    if is_device_resource(resource):
        return f"node(s) have not enough free devices of class {_device_class(resource)} for ResourceClaims"
    return ""


def in_words(resource: str, amount: int) -> str:
    """An amount in words; empty if the resource stands neither for volumes nor for devices."""
    plural = "s" if amount != 1 else ""
    if resource.startswith(_ATTACHMENTS):
        return f"{amount} attachable volume{plural} of driver {_name(resource, _ATTACHMENTS)}"
    if resource.startswith(_CAPACITY):
        return f"{binary(amount)} of storage class {_name(resource, _CAPACITY)}"
    if resource.startswith(_STATIC):
        least, storage_class = _parts(resource)
        return f"{amount} volume{plural} of storage class {storage_class} of at least {least}"
    if resource.startswith(_DEVICE_CLAIMS):
        return f"devices of class {_device_class(resource)} for the ResourceClaims of {amount} pod{plural}"
    if resource.startswith(_DEVICES):
        selected = " with the requested properties" if is_selection(resource) else ""
        return f"{amount} device{plural} of class {_device_class(resource)}{selected}"
    return ""


def binary(amount: int) -> str:
    """Bytes in words: "1.5Gi", "12 bytes"."""
    for shift, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if amount >= 1 << shift:
            return f"{round(amount / (1 << shift), 2):g}{unit}"
    return f"{amount} bytes"


def _name(resource: str, prefix: str) -> str:
    return quoted(resource.removeprefix(prefix))


def _parts(resource: str) -> tuple[str, str]:
    """Least size and storage class of static volumes, in words."""
    _, _, least, storage_class = resource.removeprefix(_STATIC).split("-", 3)
    return binary(int(least)), quoted(storage_class)


def _device_class(resource: str) -> str:
    prefix = _DEVICE_CLAIMS if resource.startswith(_DEVICE_CLAIMS) else _DEVICES
    return quoted(resource.removeprefix(prefix).partition("-")[2])
