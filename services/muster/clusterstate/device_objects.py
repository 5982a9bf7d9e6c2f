"""ResourceSlices, DeviceClasses and ResourceClaims by name, the devices that claims hold, and DeviceTaintRules."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from muster.cel.selection import DeviceSelection
from muster.clusterstate.taint_rules import TaintRules, selecting_keys
from muster.devices.allocation import Devices, held
from muster.devices.facts import Claim, DeviceClass, Request, Slice, TaintRule
from muster.devices.holdings import Holdings
from muster.devices.pools import PoolKey
from muster.devices.reach import Reach, reach_of
from muster.devices.search import BUDGET
from muster.gangs.facts import DeviceObject, DeviceObjectKind, NodeFacts
from muster.kube.device_objects import Decoded, DeviceResource, claim_facts, class_facts, slice_facts, taint_rule_facts

T = TypeVar("T")

_log: Final = structlog.get_logger(__name__)

ClaimId = tuple[str, str]
"""Namespace and name."""


MAX_REACHES: Final = 256
"""Lists of requests of which the reach is remembered."""
SEARCH_STEPS: Final = BUDGET // 10
"""Steps of the search for what one node offers, about 30 ms at most; on equal nodes it is not repeated."""


WEIGHT_OF_SLICE: Final = 10
"""Processor time of the taints of a slice with 128 devices, 0.4 ms, in multiples of a pod's."""
MANY_DEVICES: Final = 512
"""Devices that are decoded in one step with what nodes offer of them: 20 ms. Of more that is computed in further steps,
since expressions may have to be evaluated for all devices of the pools."""


class KnownClaim(NamedTuple):
    """A ResourceClaim. `facts` None: it cannot be read, because of `problem`."""

    uid: str
    facts: Claim | None
    problem: str


class DeviceObjects:
    """Objects by name. Methods return the nodes whose devices changed, None for all. Entries end with their object, and
    held devices with the claim or its allocation (I11).
    """

    def __init__(self) -> None:
        self.selection = DeviceSelection()
        matches = self.selection.matches
        self.devices = Devices(matches, SEARCH_STEPS)
        self._extended = Devices(matches, SEARCH_STEPS, self.devices.results)
        """The same devices, of which others are held: see `hold`."""
        self.claims: dict[ClaimId, KnownClaim] = {}
        self._claim_ids: dict[str, ClaimId] = {}  # by uid
        self.taint_rules = TaintRules(matches, self.devices.classes)
        self._given: dict[str, Slice] = {}
        """Slices by name, without the taints of rules."""
        self._changed_rules: set[tuple[str, str]] = set()
        """Driver and pool that changed rules name."""
        self._slice_names: dict[str, str] = {}  # by uid
        self._class_names: dict[str, str] = {}  # by uid
        self._slice_uids: dict[str, str] = {}  # by name
        self._class_uids: dict[str, str] = {}  # by name
        self._holdings, self._extended_holdings = Holdings(self.devices), Holdings(self._extended)
        self._reaches: dict[tuple[Request, ...], Reach] = {}
        """Reaches of requests, until slices or classes change; at most MAX_REACHES."""
        self.streamed: dict[tuple[DeviceObjectKind, str], DeviceObject] = {}
        """Objects that can be read, as they are streamed, by kind and name."""
        self._changed: dict[tuple[DeviceObjectKind, str], DeviceObject] = {}
        self._decoded_devices = 0

    def put_claim(self, claim: DeviceResource) -> tuple[ClaimId | None, Collection[str] | None]:
        """Returns the claim if it differs; `hold` has to follow. Removed claims hold nothing: also their nodes."""
        metadata = claim.metadata
        id_ = (metadata.namespace, metadata.name)
        before, after = self.claims.get(id_), KnownClaim(metadata.uid, *claim_facts(claim))
        if before is not None and before.facts is not None and before.facts.idle and after.facts is not None:
            after = after._replace(facts=replace(after.facts, idle=True))  # until `hold`
        self._claim_ids[metadata.uid] = id_
        if before == after or (before is not None and _differs_in_version_only(before, after)):
            return None, ()
        self.claims[id_] = after
        self._note(DeviceObjectKind.CLAIM, "/".join(id_), after.facts)
        return id_, ()

    def drop_claim(self, uid: str) -> tuple[ClaimId | None, Collection[str] | None]:
        """As `put_claim`."""
        id_ = self._claim_ids.pop(uid, None)
        if id_ is None or (known := self.claims.get(id_)) is None or known.uid != uid:
            return None, ()
        del self.claims[id_]
        self._note(DeviceObjectKind.CLAIM, "/".join(id_), None)
        holder = "/".join(id_)
        return id_, self._nodes_with({*self._holdings.hold(holder, ()), *self._extended_holdings.hold(holder, ())})

    def put_slice(self, given: DeviceResource) -> Collection[str] | None:
        """A slice that cannot be read counts as missing, so that its pool is incomplete."""
        name, uid = given.metadata.name, given.metadata.uid
        facts = self._read(slice_facts(given))
        self._slice_names[uid], self._slice_uids[name] = name, uid
        if self._given.get(name) == facts:
            return ()
        if facts is None:
            return self._without_slice(name)
        self._given[name] = facts
        return self.taint_slice(name)

    def taint_slice(self, name: str) -> Collection[str] | None:
        """Apply the rules of taints, as they are now, to a slice."""
        given, before = self._given.get(name), self.devices.pools.slice_named(name)
        if given is None or (facts := self.taint_rules.tainted(given)) == before:
            return ()
        self._reaches.clear()
        nodes = self._nodes_of_pool(before)
        self._decoded_devices += len(facts.devices)
        self.devices.put_slice(facts)
        self._extended.put_slice(facts)
        self._note(DeviceObjectKind.SLICE, name, facts)
        return _united(nodes, self._nodes_of_pool(facts))

    def drop_slice(self, uid: str) -> Collection[str] | None:
        name = self._slice_names.pop(uid, None)
        if name is None or self._slice_uids.get(name) != uid:
            return ()
        del self._slice_uids[name]
        return self._without_slice(name)

    def put_class(self, given: DeviceResource) -> bool:
        """Returns whether the class differs. One that cannot be read counts as missing."""
        name, uid = given.metadata.name, given.metadata.uid
        facts = self._read(class_facts(given))
        self._class_names[uid], self._class_uids[name] = name, uid
        if self.devices.classes.get(name) == facts:
            return False
        self._reaches.clear()
        if facts is None:
            self.devices.remove_class(name)
            self._extended.remove_class(name)
        else:
            self.devices.put_class(facts)
            self._extended.put_class(facts)
        self._note(DeviceObjectKind.CLASS, name, facts)
        self._note_tainted(self.taint_rules.of_class(name))
        return True

    def put_taint_rule(self, given: DeviceResource) -> None:
        """Add or change a rule. One that cannot be read counts as missing."""
        self._note_tainted(self.taint_rules.put(given.metadata.uid, self._read(taint_rule_facts(given))))

    def drop_taint_rule(self, uid: str) -> None:
        self._note_tainted(self.taint_rules.put(uid, None))

    def take_stale_slices(self) -> Collection[str]:
        """Slices whose devices may have other taints since the last call: `taint_slice` has to follow."""
        if not self._changed_rules:
            return ()
        changed, self._changed_rules = self._changed_rules, set()
        return [name for name, slice_ in self._given.items() if not changed.isdisjoint(selecting_keys(slice_))]

    def _note_tainted(self, rules: Iterable[TaintRule]) -> None:
        self._changed_rules.update((rule.driver, rule.pool) for rule in rules)

    def drop_class(self, uid: str) -> bool:
        """Returns whether there was one."""
        name = self._class_names.pop(uid, None)
        if name is None or self._class_uids.get(name) != uid:
            return False
        del self._class_uids[name]
        self._reaches.clear()
        known = name in self.devices.classes
        self.devices.remove_class(name)
        self._extended.remove_class(name)
        self._note(DeviceObjectKind.CLASS, name, None)
        self._note_tainted(self.taint_rules.of_class(name))
        return known

    def offered(self, node: NodeFacts, unit: tuple[Claim, ...], most: int) -> int:
        """How often the claims can be allocated on the node at the same time."""
        return self.devices.how_many(node, unit, most).number

    def offered_extended(self, node: NodeFacts, unit: tuple[Claim, ...], most: int) -> int:
        """How often the claims can be allocated on the node for extended resources."""
        return self._extended.how_many(node, unit, most).number

    def remove_node(self, name: str) -> None:
        """Forget the counts of a node that was removed."""
        self.devices.remove_node(name)
        self._extended.remove_node(name)

    def take_decoded_devices(self) -> int:
        """Devices of slices that were added or changed since the last call."""
        number, self._decoded_devices = self._decoded_devices, 0
        return number

    def reach(self, claim: Claim) -> Reach:
        """Nodes on which pods can share the claim, which is not allocated."""
        found = self._reaches.get(claim.requests)
        if found is None:
            if len(self._reaches) >= MAX_REACHES:
                self._reaches.clear()
            slices, results = self.devices.pools.slices, self.devices.results
            found = self._reaches[claim.requests] = reach_of(claim, self.devices.classes, slices, results)
        return found

    @property
    def has_changes(self) -> bool:
        """Objects to stream have changed."""
        return bool(self._changed)

    def take_changes(self) -> dict[tuple[DeviceObjectKind, str], DeviceObject]:
        """Objects that changed since the last call; removed ones without content."""
        changes, self._changed = self._changed, {}
        return changes

    @staticmethod
    def _read(decoded: Decoded[T]) -> T | None:
        """The facts; what cannot be read is logged, since no pod shows it."""
        if decoded.facts is None:
            _log.warning("device_object_unreadable", problem=decoded.problem)
        return decoded.facts

    def _note(self, kind: DeviceObjectKind, name: str, facts: Claim | DeviceClass | Slice | None) -> None:
        """Stream an object as it is now; one that cannot be read as if it were removed."""
        key = (kind, name)
        if facts is not None:
            self.streamed[key] = self._changed[key] = DeviceObject(kind, name, msgspec.json.encode(facts))
        elif self.streamed.pop(key, None) is not None:
            self._changed[key] = DeviceObject(kind, name)

    def _without_slice(self, name: str) -> Collection[str] | None:
        nodes = self._nodes_of_pool(self.devices.pools.slice_named(name))
        self._given.pop(name, None)
        self._reaches.clear()
        self.devices.remove_slice(name)
        self._extended.remove_slice(name)
        self._note(DeviceObjectKind.SLICE, name, None)
        return nodes

    def hold(self, id_: ClaimId, *, counted: bool) -> Collection[str] | None:
        """Note the devices of a claim. Those of a counted one are not held: its pod requests them as resources, as
        extended ones if the claim is for such; for the others they are held.
        """
        known = self.claims.get(id_)
        facts = known.facts if known is not None else None
        devices = held([facts]) if facts is not None else set()
        extended = facts is not None and facts.extended
        holder = "/".join(id_)
        return self._nodes_with(
            {
                *self._holdings.hold(holder, () if counted and not extended else devices),
                *self._extended_holdings.hold(holder, () if counted and extended else devices),
            }
        )

    def mark_idle(self, id_: ClaimId, *, idle: bool) -> None:
        """Note whether the claim is reserved for a PodGroup without a bound pod, if it is known."""
        known = self.claims.get(id_)
        if known is not None and known.facts is not None and known.facts.idle is not idle:
            facts = replace(known.facts, idle=idle)
            self.claims[id_] = known._replace(facts=facts)
            self._note(DeviceObjectKind.CLAIM, "/".join(id_), facts)

    def _nodes_of_pool(self, slice_: Slice | None) -> Collection[str] | None:
        """Nodes whose devices depend on a slice: all of its pool, since it may be incomplete without the slice."""
        return () if slice_ is None else self._nodes_with({(slice_.driver, slice_.pool)})

    def _nodes_with(self, pools: Collection[PoolKey]) -> Collection[str] | None:
        found: set[str] = set()
        for key in pools:
            nodes = self.devices.pools.nodes_of(key)
            if nodes is None:
                return None
            found |= nodes
        return found


def _differs_in_version_only(before: KnownClaim, after: KnownClaim) -> bool:
    """Nothing depends on the change of a claim that is not allocated, as when binding adds the finalizer: the version
    matters to the deallocation of a stale allocation only.
    """
    if before.facts is None or after.facts is None or before.facts.allocation or after.facts.allocation:
        return False
    return before == after._replace(facts=replace(after.facts, version=before.facts.version))


def _united(one: Collection[str] | None, other: Collection[str] | None) -> Collection[str] | None:
    return None if one is None or other is None else {*one, *other}
