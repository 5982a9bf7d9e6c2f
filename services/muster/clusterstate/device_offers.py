"""Offers of nodes for devices. For many devices they are computed in steps, between which others have a turn (I12)."""

from collections.abc import Collection, Generator
from typing import Final

from muster.clusterstate.device_claims import DeviceClaims
from muster.devices.columns import MOST_PER_NODE
from muster.gangs.facts import Amounts, NodeFacts

STEP: Final = 256
"""Evaluations of a list of selectors for a device in one step, or as many more devices to count: 3 ms, or 26 ms with
costly selectors. What needs no more than two steps for a node is done with its offers."""
_COUNTED_PER_EVALUATION: Final = 8
"""Devices that are counted in the time of an evaluation."""
WEIGHT_OF_STEP: Final = 80
"""Processor time of a step, in multiples of a pod's."""

Offers = tuple[Amounts, Amounts]
"""Resources that stand for devices, and extended resources that the node offers as devices."""

_NOTHING: Final[Offers] = ((), ())


class DeviceOffers:
    """Offers by node. While they are computed in steps, a node offers what it offered before.

    All that is known of a node ends with `drop_node` (I11).
    """

    def __init__(self, claims: DeviceClaims) -> None:
        self._claims = claims
        self._offers: dict[str, Offers] = {}
        self._steps: dict[str, Generator[None, None, Offers]] = {}
        """Computations under way."""
        self._begun: dict[str, None] = {}
        self._computed: set[str] = set()
        """Nodes whose steps have ended, until their offers are taken."""
        self._changed: set[str] = set()
        """Nodes that may have changed since their steps began: these end, and begin again."""

    def of(self, node: NodeFacts) -> Offers:
        """Offers of the node, or those from before its steps began."""
        name = node.name
        if name in self._steps:
            self._changed.add(name)
            return self._offers.get(name, _NOTHING)
        if name in self._computed:
            self._computed.discard(name)
            if name not in self._changed:
                return self._offers.get(name, _NOTHING)
            self._changed.discard(name)
        if self._begins(node):
            return self._offers.get(name, _NOTHING)
        offers = self._claims.offered(node), self._claims.extended.offered(node)
        self._put(name, offers)
        return offers

    def _put(self, name: str, offers: Offers) -> None:
        if offers == _NOTHING:
            self._offers.pop(name, None)
        else:
            self._offers[name] = offers

    def _begins(self, node: NodeFacts) -> bool:
        """So much is to be evaluated and counted for the node that it is done in steps."""
        claims, lists = self._claims, self._claims.selector_lists
        devices = claims.objects.devices
        number = devices.number_on(node) if lists else 0
        if number * len(lists) <= 2 * STEP:
            return False
        work = sum(len(slice_.devices) for slice_, _ in devices.unevaluated(node, lists))
        uncounted = sum(devices.uncounted_on(node, unit) for unit in claims.units.values())
        work += uncounted // _COUNTED_PER_EVALUATION
        if work <= 2 * STEP:
            return False
        self._steps[node.name] = self._evaluated_and_counted(node, number)
        self._begun[node.name] = None
        return True

    def _evaluated_and_counted(self, node: NodeFacts, number: int) -> Generator[None, None, Offers]:
        """Evaluates selectors for the devices of a node, so many as `number`, and counts the devices, in steps."""
        objects, work = self._claims.objects, 0
        devices, found = objects.devices, list[Amounts]()
        for offered, units in (
            (objects.offered, self._claims.units),
            (objects.offered_extended, self._claims.extended.units),
        ):
            amounts = []
            for name, unit in list(units.items()):
                for slice_, selectors in devices.unevaluated(node, devices.selector_lists(unit)):
                    devices.results.excluded_by(slice_, selectors)
                    work += len(slice_.devices)
                    if work >= STEP:
                        work = 0
                        yield
                if amount := offered(node, unit, MOST_PER_NODE):
                    amounts.append((name, amount))
                work += number // _COUNTED_PER_EVALUATION
                if work >= STEP:
                    work = 0
                    yield
            found.append(tuple(amounts))
        return found[0], found[1]

    def take_begun(self) -> Collection[str]:
        """Nodes of which the first step is due since the last call: `advance` has to follow."""
        begun, self._begun = self._begun, {}
        return begun

    def advance(self, name: str) -> bool:
        """One step for a node. False: it was the last one, and the node's offers are to be computed."""
        steps = self._steps.get(name)
        if steps is None:
            return False
        try:
            next(steps)
        except StopIteration as end:
            del self._steps[name]
            self._put(name, end.value)
            self._computed.add(name)
            return False
        return True

    def drop_node(self, name: str) -> None:
        self._offers.pop(name, None)
        self._steps.pop(name, None)
        self._begun.pop(name, None)
        self._computed.discard(name)
        self._changed.discard(name)
