"""Extended resources that a DeviceClass backs (KEP-5004): a node that does not offer the resource by a device plugin
offers devices of the class for it. The scheduler creates a ResourceClaim for all such requests of a pod.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.devices.facts import MAX_REQUESTS, Alternative, DeviceClass, Request
from muster.gangs.facts import ExtendedRequest

EXTENDED_CLAIM: Final = "<extended-resources>"
"""Stands for the claim's name until it is created; no name of an object."""
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource that every DeviceClass backs, with its name."""


class RequestMapping(Struct, frozen=True, gc=False):
    """The request of the claim that has devices for a container's request of a resource."""

    container: str
    resource: str
    request: str


class ExtendedClaim(NamedTuple):
    """The requests of a pod's claim for extended resources, by name, and which of them each container uses. `problem`:
    why it cannot be created.
    """

    requests: tuple[Request, ...]
    mappings: tuple[RequestMapping, ...]
    problem: str = ""

    def fits(self, allocated: Collection[str]) -> bool:
        """Whether an allocation with these results, each the name of its request, is one of this claim."""
        return Counter(allocated) == {request.name: request.alternatives[0].count for request in self.requests}

    def spec_json(self) -> bytes:
        """The spec of the ResourceClaim in JSON."""
        requests = [{"name": each.name, "exactly": _exactly(each.alternatives[0])} for each in self.requests]
        return msgspec.json.encode({"devices": {"requests": requests}})


def is_extended(resource: str) -> bool:
    """Whether a DeviceClass may back the resource: extended resources, and the implicit ones of classes."""
    if resource.startswith(IMPLICIT):
        return True
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def classes_by_resource(classes: Mapping[str, DeviceClass]) -> dict[str, DeviceClass]:
    """The class of each extended resource: of several, the one created last, then the lower name."""
    found: dict[str, DeviceClass] = {}
    for each in sorted(classes.values(), key=lambda one: (-one.created_seconds, one.name)):
        found.setdefault(f"{IMPLICIT}{each.name}", each)
        if each.extended_resource:
            found.setdefault(each.extended_resource, each)
    return found


def extended_claim(
    requested: Sequence[ExtendedRequest], backed: Collection[str], classes: Mapping[str, DeviceClass]
) -> ExtendedClaim | None:
    """The claim of a pod on a node that offers the `backed` resources as devices; None: it needs none.

    `classes`: by resource. Init containers that end before the others start use devices of later ones; of devices that
    they need besides, those of the largest request are enough for all.
    """
    requests: list[Request] = []
    mappings: list[RequestMapping] = []
    for resource in sorted({each.resource for each in requested if each.resource in backed}):
        device_class = classes.get(resource)
        if device_class is None:
            return ExtendedClaim((), (), f"no DeviceClass backs the extended resource {resource}")
        of_resource = [each for each in requested if each.resource == resource]
        found, used = _requests(of_resource, device_class.name)
        requests += found
        mappings += used
    if len(requests) > MAX_REQUESTS:
        return ExtendedClaim((), (), f"its containers request {len(requests)} times devices, at most {MAX_REQUESTS}")
    return ExtendedClaim(tuple(sorted(requests, key=lambda each: each.name)), tuple(mappings)) if requests else None


def _exactly(alternative: Alternative) -> dict[str, object]:
    mode = {"allocationMode": "ExactCount", "count": alternative.count}
    return {"deviceClassName": alternative.device_class, **mode}


def _requests(requested: Iterable[ExtendedRequest], device_class: str) -> tuple[list[Request], list[RequestMapping]]:
    """Requests and mappings for one resource."""
    ordered = sorted(requested, key=lambda each: each.index)
    lasting = [each for each in ordered if not each.starts]
    counts = {each.request: each.amount for each in lasting}
    mappings = [RequestMapping(each.container, each.resource, each.request) for each in lasting]
    extra: dict[str, int] = {}
    used_by_starting: list[RequestMapping] = []
    for each in ordered:
        if not each.starts:
            continue
        missing = each.amount
        for other in lasting:
            if other.index > each.index and missing > 0:
                missing -= other.amount
                used_by_starting.append(RequestMapping(each.container, each.resource, other.request))
        if missing > 0:
            extra[each.request] = missing
            used_by_starting.append(RequestMapping(each.container, each.resource, each.request))
    if extra:
        largest = max(extra, key=lambda name: extra[name])
        counts[largest] = extra[largest]
        used_by_starting = [
            replace(each, request=largest) if each.request in extra else each for each in used_by_starting
        ]
    requests = [Request(name, (Alternative(device_class, count=count),)) for name, count in counts.items()]
    return requests, mappings + used_by_starting
