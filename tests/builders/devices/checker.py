"""Checks the allocation of devices by the rules of the API, independently of how it was found."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from builders.devices.random_devices import LABELS, NODE, matches
from muster.devices.decoding import decode_class, decode_slice
from muster.devices.facts import Allocation, Alternative, Claim, DeviceId, Slice
from muster.gangs.facts import NodeFacts, TaintEffect
from muster.gangs.node_filters import term_matches


def broken_rules(instance: dict[str, Any], claims: Sequence[Claim], allocations: Sequence[Allocation]) -> list[str]:
    """The rules that the allocations of the claims break."""
    return _Checker(instance).broken(claims, allocations)


class _Checker:
    def __init__(self, instance: dict[str, Any]) -> None:
        slices = [decode_slice(each) for each in instance["slices"]]
        newest: dict[tuple[str, str], int] = {}
        for each in slices:
            key = (each.driver, each.pool)
            newest[key] = max(newest.get(key, 0), each.generation)
        self.slices = [each for each in slices if each.generation == newest[each.driver, each.pool]]
        self.classes = {each.name: each for each in map(decode_class, instance["classes"])}
        self.allocated = {DeviceId(*each) for each in instance["allocated"]}
        self.devices = {
            DeviceId(part.driver, part.pool, device.name): (part, device)
            for part in self.slices
            for device in part.devices
        }
        self.problems: list[str] = []

    def broken(self, claims: Sequence[Claim], allocations: Sequence[Allocation]) -> list[str]:
        self.expect(len(claims) == len(allocations), "an allocation for each claim")
        exclusive: Counter[DeviceId] = Counter()
        for claim, allocation in zip(claims, allocations, strict=True):
            within = Counter(each.id for each in allocation.results)
            self.expect(all(number == 1 for number in within.values()), f"{claim.id}: a device once")
            self.expect(len(allocation.results) <= 32, f"{claim.id}: at most 32 devices")
            exclusive.update(each.id for each in allocation.results if not each.admin_access)
            self.check_requests(claim, allocation)
            self.check_constraints(claim, allocation)
            selector = allocation.node_selector
            node = NodeFacts(NODE, labels=LABELS)
            self.expect(
                selector is None or any(term_matches(term, node) for term in selector), f"{claim.id}: the node itself"
            )
        self.expect(all(number == 1 for number in exclusive.values()), "a device for one claim only")
        self.expect(not exclusive.keys() & self.allocated, "no device that is allocated")
        self.check_counters([each.id for allocation in allocations for each in allocation.results])
        return self.problems

    def expect(self, holds: bool, rule: str) -> None:
        if not holds:
            self.problems.append(rule)

    def selects(self, alternative: Alternative, id_: DeviceId) -> bool:
        _, device = self.devices[id_]
        expressions = self.classes[alternative.device_class].selectors + alternative.selectors
        return all(matches(each, device) for each in expressions)

    def here(self, part: Slice, id_: DeviceId) -> bool:
        source = self.devices[id_][1] if part.per_device else part
        if source.node_name:
            return source.node_name == NODE
        node = NodeFacts(NODE, labels=LABELS)
        return source.all_nodes or any(term_matches(term, node) for term in source.node_selector or ())

    def check_requests(self, claim: Claim, allocation: Allocation) -> None:
        by_request: dict[str, list[DeviceId]] = {}
        for each in allocation.results:
            by_request.setdefault(each.request, []).append(each.id)
        for request in claim.requests:
            ways = [each for each in request.alternatives if request.path(each) in by_request]
            self.expect(len(ways) == 1, f"{claim.id}: one alternative of {request.name}")
            for way in ways:
                ids = by_request.pop(request.path(way))
                for id_ in ids:
                    part, device = self.devices[id_]
                    self.expect(self.selects(way, id_), f"{id_}: selectors")
                    self.expect(self.here(part, id_), f"{id_}: node")
                    repelling = [each for each in device.taints if each.effect is not TaintEffect.NONE]
                    tolerated = [any(one.tolerates(each) for one in way.tolerations) for each in repelling]
                    self.expect(all(tolerated), f"{id_}: taints")
                if way.count:
                    self.expect(len(ids) == way.count, f"{claim.id}: count of {request.name}")
                else:
                    every = {
                        id_
                        for id_, (part, _) in self.devices.items()
                        if self.here(part, id_) and self.selects(way, id_)
                    }
                    self.expect(set(ids) == every, f"{claim.id}: all devices for {request.name}")
        self.expect(not by_request, f"{claim.id}: no other requests")

    def check_constraints(self, claim: Claim, allocation: Allocation) -> None:
        for constraint in claim.constraints:
            values = []
            for each in allocation.results:
                if constraint.applies(each.request.partition("/")[0], each.request):
                    value = self.devices[each.id][1].attributes.get(constraint.attribute)
                    values.append((type(value), value))
            self.expect((type(None), None) not in values, f"{claim.id}: attribute {constraint.attribute}")
            distinct = len(set(values))
            self.expect(
                distinct == (len(values) if constraint.distinct else min(len(values), 1)), f"{claim.id}: {constraint}"
            )

    def check_counters(self, chosen: list[DeviceId]) -> None:
        left: Counter[tuple[str, str, str, str]] = Counter()
        for part in self.slices:
            for each in part.shared:
                for name, amount in each.counters:
                    left[part.driver, part.pool, each.name, name] += amount
        touched = set()
        for id_ in [*self.allocated & self.devices.keys(), *chosen]:
            for each in self.devices[id_][1].consumes:
                for name, amount in each.counters:
                    key = (id_.driver, id_.pool, each.name, name)
                    left[key] -= amount
                    if id_ in chosen:
                        touched.add(key)
        self.expect(all(left[key] >= 0 for key in touched), "counters are never negative")
