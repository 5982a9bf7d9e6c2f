"""Extended resources that nodes offer as devices, because a DeviceClass backs the resource (KEP-5004).

Such a node offers as many as devices of the class that are free, or allocated to pods that request the resource: these
pods request it as they would on a node with a device plugin. Devices that ResourceClaims of other pods have are not
offered, even if these pods could be preempted; neither is the reverse.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from muster.clusterstate.device_objects import ClaimId, DeviceObjects
from muster.devices.columns import MOST_PER_NODE
from muster.devices.extended_resources import classes_by_resource
from muster.devices.facts import Alternative, Claim, DeviceClass, Request
from muster.gangs.facts import Amounts, NodeFacts

MAX_EXTENDED: Final = 16
"""Resources that are counted at a time, the first ones by name; each costs a count per node."""


class ExtendedResources:
    """Resources that pods request and classes back, and the claims for them by owner. Entries end with the last pod
    class that requests the resource, and with the claim (I11).
    """

    def __init__(
        self,
        objects: DeviceObjects,
        uses_capacity: Callable[[str], bool],
        note_nodes: Callable[[Collection[str] | None], None],
    ) -> None:
        """`uses_capacity` returns whether the requests of the pod with this uid count; `note_nodes` is called with
        nodes that may offer other amounts, None for all.
        """
        self._objects, self._uses_capacity, self._note_nodes = objects, uses_capacity, note_nodes
        self._requested: Collection[str] = ()
        self._classes: Mapping[str, DeviceClass] | None = None
        """DeviceClasses by resource, once one is requested."""
        self._units: dict[str, tuple[Claim, ...]] = {}
        self.owners: dict[str, ClaimId] = {}
        """Claims for extended resources by the uid of their pod."""
        self._owner_of: dict[ClaimId, str] = {}

    def __len__(self) -> int:
        """Number of resources that nodes may offer as devices."""
        return len(self._units)

    @property
    def units(self) -> Mapping[str, tuple[Claim, ...]]:
        """Claims of which nodes offer a number, by resource."""
        return self._units

    def request(self, resources: Collection[str], added: Iterable[str] | None = None) -> None:
        """Pods request these extended resources now, and no others. `added`: those of a pod, and none was dropped; the
        cost does not depend on what others request.
        """
        self._requested = resources
        if added is not None:
            classes = self._by_resource()
            if all(name in self._units or name not in classes for name in added):
                return
        self._update_units()

    def update_classes(self) -> None:
        """DeviceClasses changed."""
        self._classes = None
        self._update_units()

    def _by_resource(self) -> Mapping[str, DeviceClass]:
        if self._classes is None:
            self._classes = classes_by_resource(self._objects.devices.classes)
        return self._classes

    def _update_units(self) -> None:
        classes = self._by_resource() if self._requested else {}
        backed = sorted(name for name in classes if name in self._requested)[:MAX_EXTENDED]
        units = {name: _unit(classes[name].name) for name in backed}
        if units != self._units:
            self._units = units
            self._note_nodes(self._objects.devices.pools.named_nodes)

    def offered(self, node: NodeFacts) -> Amounts:
        """Amounts that a node offers as devices."""
        offers = (
            (name, self._objects.offered_extended(node, unit, MOST_PER_NODE)) for name, unit in self._units.items()
        )
        return tuple((name, number) for name, number in offers if number)

    def put_claim(self, id_: ClaimId, claim: Claim | None) -> None:
        """A claim was added, changed or removed (None)."""
        before = self._owner_of.pop(id_, "")
        if self.owners.get(before) == id_:
            del self.owners[before]
        if claim is not None and claim.extended and claim.owner:
            self.owners[claim.owner], self._owner_of[id_] = id_, claim.owner

    def put_owner(self, uid: str) -> None:
        """A pod was added, changed or removed."""
        if (id_ := self.owners.get(uid)) is not None:
            self._note_nodes(self._objects.hold(id_, counted=self.is_counted(id_)))

    def is_counted(self, id_: ClaimId) -> bool:
        """The claim's devices are those of a pod whose requests count: they are offered, and requested by the pod."""
        known = self._objects.claims.get(id_)
        if known is None or known.facts is None:
            return False
        claim = known.facts
        return claim.extended and set(claim.reserved_for) <= {claim.owner} and self._uses_capacity(claim.owner)


def _unit(device_class: str) -> tuple[Claim, ...]:
    return (Claim("", "", requests=(Request("unit", (Alternative(device_class),)),)),)
