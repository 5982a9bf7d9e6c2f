"""Explains which requests of a gang's ResourceClaims find no devices: completely for Explain, which includes extended
resources that DeviceClasses back, briefly for conditions.

The complete explanation looks at every device once per request of distinct claims, in slices and between two steps; the
brief one reads the sums of the counted resources that stand for devices, and evaluates an expression for few devices.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.slices import Slices, parts
from muster.devices.columns import columns_of
from muster.devices.explanation import Conflict, Holders, RequestShortage, conflict, shortages
from muster.devices.extended_resources import ExtendedClaim, classes_by_resource, extended_claim
from muster.devices.facts import Alternative, Claim
from muster.gangs.counted_resources import is_device_resource, is_searched, is_selection
from muster.gangs.facts import NodeFacts, PodFacts
from muster.gangs.node_filters import filter_reason
from muster.gangs.quoting import quoted
from muster.gangs.solve import Explanation

MAX_KINDS: Final = 4
"""Distinct claims of one gang's pods that are explained; of further ones only the number is reported."""
_NAMED_CLAIMS: Final = 3
_NAMELESS: Final = Claim("", "")


class ClaimedDevices(Struct):
    """Devices for pending pods with equal claims: the first pod by name, and how many there are."""

    pod: PodFacts
    pods: int
    requests: list[RequestShortage] = []
    conflict: Conflict = Conflict()

    @property
    def would_help(self) -> list[str]:
        """Changes that would let the claims of one pod be allocated."""
        found = [f"for {each.name}: {way}" for each in self.requests if (way := each.would_help)]
        return [*found, self.conflict.would_help] if self.conflict.would_help else found


def claimed_devices(cache: Cache, gang: Gang) -> Slices[list[ClaimedDevices]]:
    """Devices for the claims and extended resources of the gang's pods that have no place, by kind of claims; without
    `requests` beyond MAX_KINDS.
    """
    ledger, extended = cache.ledger, _ExtendedClaims(cache.ledger)
    kinds: dict[tuple[str, tuple[Claim, ...]], ClaimedDevices] = {}
    claims: dict[tuple[str, tuple[Claim, ...]], list[Claim]] = {}
    waiting = [pod for pod in gang.pending.values() if pod.device_claims or extended.of_class(pod.class_id)]
    for some in parts(tuple(sorted(waiting, key=lambda pod: (len(pod.name), pod.name)))):
        for pod in some:
            own = [each for each in ledger.devices.claims_of(pod) if each.allocation is None]
            key = (
                pod.class_id,
                tuple(replace(_NAMELESS, requests=one.requests, constraints=one.constraints) for one in own),
            )
            if key in kinds:
                kinds[key].pods += 1
            elif own or extended.of_class(pod.class_id):
                kinds[key], claims[key] = ClaimedDevices(pod, 1), own
        yield
    if not kinds:
        return []
    names: dict[str, str] = {}
    held = ledger.devices.held()
    holders = {id_: _named(cache, holder, names) for id_, holder in held.items()}
    yield
    for key, found in list(kinds.items())[:MAX_KINDS]:
        nodes = yield from _usable_nodes(ledger, found.pod.class_id)
        found.requests = yield from shortages(ledger.devices.devices, claims[key], nodes, holders)
        if claims[key] and not any(each.short for each in found.requests):
            found.conflict = yield from conflict(ledger.devices.devices, claims[key], nodes)
        found.requests += yield from extended.shortages(found.pod, nodes, holders)
        if not found.requests:
            del kinds[key]
    return list(kinds.values())


class _ExtendedClaims:
    """Claims that pods need for extended resources on nodes that offer these as devices, by class, for one explanation,
    with which they end (I11).
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._by_resource = classes_by_resource(ledger.devices.devices.classes)
        self._claims: dict[str, ExtendedClaim | None] = {}

    def of_class(self, class_id: str) -> ExtendedClaim | None:
        """The claim of a pod of the class for all resources that DeviceClasses back; None: there are none."""
        if class_id not in self._claims:
            pod_class = self._ledger.classes.get(class_id)
            requested = pod_class.extended if pod_class is not None else ()
            self._claims[class_id] = extended_claim(requested, self._by_resource, self._by_resource)
        return self._claims[class_id]

    def shortages(self, pod: PodFacts, nodes: Sequence[NodeFacts], holders: Holders) -> Slices[list[RequestShortage]]:
        """Devices for each request; none for a resource that only device plugins offer."""
        claim, found = self.of_class(pod.class_id), []
        mappings = {each.request: each for each in reversed(claim.mappings)} if claim is not None else {}
        for request in claim.requests if claim is not None else ():
            mapping = mappings[request.name]
            without: list[NodeFacts] = []
            for some in parts(tuple(nodes)):
                without += [each for each in some if not _has_plugin(each, mapping.resource)]
                yield
            one = replace(_NAMELESS, requests=(request,))
            [shortage] = yield from shortages(self._ledger.devices.devices, [one], without, holders)
            if shortage.devices or len(without) == len(nodes):
                found.append(replace(shortage, claim="", request=mapping.container, resource=mapping.resource))
        return found


def _has_plugin(node: NodeFacts, resource: str) -> bool:
    """Whether the node offers the resource by a device plugin, and thus no devices for it."""
    return resource not in node.device_backed and any(name == resource and amount for name, amount in node.allocatable)


def _usable_nodes(ledger: Ledger, class_id: str) -> Slices[list[NodeFacts]]:
    """Nodes that are not filtered out for the class."""
    nodes: list[NodeFacts] = []
    pod_class = ledger.classes.get(class_id)
    for some in parts(tuple(ledger.nodes.values())):
        nodes += [each for each in some if pod_class is not None and filter_reason(pod_class, each) is None]
        yield
    return nodes


def _named(cache: Cache, holder: str, names: dict[str, str]) -> str:
    """The gang, pod or claim that holds devices, for users. `names`: those that are known, by holder."""
    name = names.get(holder)
    if name is None:
        claim = cache.ledger.devices.claims.get(holder)
        uids = (holder,) if claim is None else claim.reserved_for
        gang = next((cache.gang_of[uid] for uid in uids if uid in cache.gang_of), None)
        if gang is None:
            name = f"ResourceClaim {holder}" if claim is not None else "a pod that is gone"
        else:
            name = f"{'pod' if gang.plain else 'gang'} {gang.label}"
        names[holder] = name
    return name


# -- conditions


def name_device_request(explanation: Explanation, cache: Cache) -> Explanation:
    """Adds to an explanation that devices are missing which request of which claim lacks them, and what is free."""
    short = [name for name, _ in explanation.short_by if is_device_resource(name)]
    gang = cache.gangs.get(explanation.gang)
    if gang is None:
        return explanation
    if not short:
        text = _extended_in_brief(cache.ledger, [name for name, _ in explanation.short_by])
        return replace(explanation, summary=f"{explanation.summary}; {text}") if text else explanation
    pods = [pod for pod in gang.pending.values() if pod.device_claims and pod.class_id == explanation.class_id]
    if not pods:
        return explanation
    pod = min(pods, key=lambda each: (len(each.name), each.name))
    claims = [each for each in cache.ledger.devices.claims_of(pod) if each.allocation is None]
    text = _brief(cache.ledger, claims, min(short, key=_least_specific), each=explanation.needed > 1)
    return replace(explanation, summary=f"{explanation.summary}; {text}") if text else explanation


def _least_specific(resource: str) -> tuple[bool, bool, str]:
    """Order of resources: those of selections before those of whole classes, those of claims together last."""
    return is_searched(resource), not is_selection(resource), resource


def _brief(ledger: Ledger, claims: Sequence[Claim], resource: str, *, each: bool) -> str:
    """The request for the resource, and how much of it is free; empty if there is none. `each`: of several pods."""
    free, most, offered = _amounts(ledger, resource)
    if is_searched(resource):
        names = ", ".join(quoted(claim.name) for claim in claims[:_NAMED_CLAIMS])
        more = f" and {len(claims) - _NAMED_CLAIMS} more" if len(claims) > _NAMED_CLAIMS else ""
        where = f"only {free} can be allocated now" if free else "no node has devices for them"
        alternatives = [each for claim in claims for request in claim.requests for each in request.alternatives]
        unsupported = _unsupported(ledger, alternatives)
        return f"ResourceClaims like {names}{more}: {where}{unsupported}" if claims else ""
    for claim in claims:
        for request in claim.requests:
            one = replace(claim, requests=(request,), constraints=())
            wanted = columns_of([one]).amounts.get(resource)
            if wanted is None:
                continue
            alternative = request.alternatives[0]
            text = f"request {quoted(request.name)} of ResourceClaim {quoted(claim.name)} wants {wanted}"
            text += " per pod, " if each else ", "
            text += f"{free} {'is' if free == 1 else 'are'} free, at most {most} on one node" if free else "0 are free"
            if not offered:
                error = ledger.devices.failure(alternative)
                selectors = [quoted(expression) for expression in alternative.selectors]
                text += f"; none matches {' and '.join(selectors[:_NAMED_CLAIMS])}" if selectors and not error else ""
                text += f": {error}" if error else ""
            return text + _unsupported(ledger, [alternative])
    return ""


def _extended_in_brief(ledger: Ledger, resources: Sequence[str]) -> str:
    """Says that devices for one of these extended resources are not supported; empty if none is known to be."""
    if not ledger.devices.devices.pools.with_unsupported:
        return ""
    classes = classes_by_resource(ledger.devices.devices.classes)
    backed = [Alternative(classes[name].name) for name in resources if name in classes]
    return _unsupported(ledger, backed).removeprefix("; ")


def _unsupported(ledger: Ledger, alternatives: Sequence[Alternative]) -> str:
    """Names a device that one of these selects and that has a feature which is not supported."""
    for each in alternatives[:_NAMED_CLAIMS]:
        if (found := ledger.devices.unsupported(each)) is not None:
            device, feature = found
            return f"; devices with {feature} are not supported, such as {device}"
    return ""


def _amounts(ledger: Ledger, resource: str) -> tuple[int, int, int]:
    """Amounts of a resource: free on all nodes, free on the node with most, and those that nodes offer."""
    column = ledger.capacity.resources.get(resource)
    if column is None:
        return 0, 0, 0
    offered = ledger.capacity.allocatable[:, column]
    free = np.maximum(offered - ledger.capacity.used[:, column], 0)
    return int(free.sum()), int(free.max(initial=0)), int(offered.sum())
