"""Invariants, checked at every change of the API from the start of a cluster to its end.

I1 no pod of a gang is bound unless the gang starts: at its end, at least its minimum were bound; before its first bind,
every gang of its group was permitted
I2 a gang's record is in etcd before its first bind is observed
I3 bound pods never request more than their node has, and no kubelet rejects one for lack of capacity
I4 a pod never moves
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from builders.etcd.records import EtcdRecords
from muster.coordinator.v1.record_pb2 import GangRecord
from muster.gangs.facts import PODS
from muster.gangs.quantity import to_amount

RECORD_SECONDS = 30.0
"""Deadline for etcd to report a record that was written before a bind."""


@dataclass
class _Gang:
    minimum: int
    group: tuple[str, ...] = ()
    bound: set[str] = field(default_factory=set)
    """Uids of pods that were ever bound."""


class Invariants:
    """Collects violations; `check()` raises them."""

    def __init__(self, records: EtcdRecords, *, record_seconds: float = RECORD_SECONDS) -> None:
        self._records, self._record_seconds = records, record_seconds
        self.violations: list[str] = []
        self._gangs: dict[str, _Gang] = {}
        self._gang_of: dict[tuple[str, str], str] = {}
        self._homes: dict[str, str] = {}
        self._allocatable: dict[str, dict[str, int]] = {}
        self._seated: defaultdict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        self._doubts: set[asyncio.Task[None]] = set()

    def expect(self, gang: str, minimum: int, pods: Iterable[tuple[str, str]], group: tuple[str, ...] = ()) -> None:
        """Check a gang that is about to be created; pods are (namespace, name)."""
        self._gangs[gang] = _Gang(minimum, group)
        self._gang_of.update(dict.fromkeys(pods, gang))

    def excuse(self, gang: str) -> None:
        """Exempt a gang whose members the test itself binds, or removes while they are bound."""
        self._gangs.pop(gang, None)

    def forget(self, gang: str) -> None:
        """Check a gang that is about to be deleted, for the last time."""
        self._judge(gang)
        self._gangs.pop(gang, None)
        self._records.forget(gang)

    def pod(self, change: str, pod: Mapping[str, Any]) -> None:
        """Take in a change of a pod."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        uid, node = metadata["uid"], spec.get("nodeName", "")
        if (home := self._homes.get(uid)) and home != node:
            self._violated("I4", f"pod {metadata['name']} moved from {home} to {node or 'no node'}")
        if str(status.get("reason", "")).startswith("OutOf"):
            self._violated("I3", f"the kubelet of {node} refused {metadata['name']}: {status.get('message')}")
        if node:
            if uid not in self._homes:
                self._homes[uid] = node
                self._bound(uid, (metadata["namespace"], metadata["name"]))
            ended = change == "DELETED" or status.get("phase") in ("Succeeded", "Failed")
            by_devices = _resources_by_devices(status)
            requests = {name: amount for name, amount in _requests(spec).items() if name not in by_devices}
            self._seat(uid, node, {} if ended else requests)

    def node(self, change: str, node: Mapping[str, Any]) -> None:
        """Take in a change of a node."""
        amounts = node.get("status", {}).get("allocatable") or {}
        self._allocatable[node["metadata"]["name"]] = {
            name: to_amount(name, str(text), round_up=False) for name, text in amounts.items()
        }

    async def check(self) -> None:
        """Raise AssertionError for any violation. Call it when nothing is under way: I1 is checked now."""
        await self.compared()
        for gang in list(self._gangs):
            self._judge(gang)
        violations, self.violations = self.violations, []
        assert not violations, "\n".join(violations)

    async def compared(self) -> None:
        """Compare all bound pods with the permits in etcd, before etcd may be lost."""
        await asyncio.gather(*self._doubts)

    def _bound(self, uid: str, pod: tuple[str, str]) -> None:
        name = self._gang_of.get(pod)
        gang = self._gangs.get(name) if name else None
        if gang is None or name is None:
            return
        if not gang.bound:
            self._doubt(self._permitted(name, gang.minimum, self._records.permit(name, seconds=self._record_seconds)))
            for partner in gang.group:
                if partner in self._gangs:
                    permit = self._records.permit(partner, seconds=self._record_seconds)
                    self._doubt(self._permitted_too(name, partner, permit))
        gang.bound.add(uid)

    def _doubt(self, check: Coroutine[Any, Any, None]) -> None:
        doubt = asyncio.ensure_future(check)
        self._doubts.add(doubt)
        doubt.add_done_callback(self._doubts.discard)

    async def _permitted(self, name: str, minimum: int, permit: Awaitable[GangRecord | None]) -> None:
        record = await permit
        if record is None:
            self._violated("I2", f"a pod of {name} was bound and there was never a permit in etcd")
        elif (seats := sum(len(seat.pods) for seat in record.seats)) < minimum:
            self._violated("I1", f"{name} was permitted with {seats} seats and {minimum} must start together: {record}")

    async def _permitted_too(self, name: str, partner: str, permit: Awaitable[GangRecord | None]) -> None:
        if await permit is None:
            self._violated("I1", f"a pod of {name} was bound and {partner} of its group was never permitted")

    def _judge(self, name: str) -> None:
        gang = self._gangs.get(name)
        if gang is None or not gang.bound:
            return
        if len(gang.bound) < gang.minimum:
            self._violated("I1", f"{len(gang.bound)} pods of {name} were bound and {gang.minimum} must start together")
        for partner in gang.group:
            if partner in self._gangs and not self._gangs[partner].bound:
                self._violated("I1", f"{name} started without {partner} of its group")

    def _seat(self, uid: str, node: str, requests: dict[str, int]) -> None:
        seated = self._seated[node]
        if seated.get(uid) == requests:
            return
        if not requests:
            seated.pop(uid, None)
            return
        seated[uid] = requests
        allocatable = self._allocatable.get(node)
        if allocatable is None:
            return
        for name in requests:
            used = sum(other.get(name, 0) for other in seated.values())
            if used > allocatable.get(name, 0):
                self._violated("I3", f"pods on {node} ask {used} {name}, it has {allocatable.get(name, 0)}")

    def _violated(self, invariant: str, what: str) -> None:
        self.violations.append(f"{invariant}: {what}")


def _resources_by_devices(status: Mapping[str, Any]) -> set[str]:
    """Extended resources that the pod has as devices of a claim: the kubelet checks that no two pods have one."""
    claim = status.get("extendedResourceClaimStatus") or {}
    return {str(each["resourceName"]) for each in claim.get("requestMappings") or ()}


def _requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Resource requests of the tests' pods: the sum over containers, and one pod."""
    total: dict[str, int] = {PODS: 1}
    for container in spec["containers"]:
        for name, text in (container.get("resources", {}).get("requests") or {}).items():
            total[name] = total.get(name, 0) + to_amount(name, str(text), round_up=True)
    return total
