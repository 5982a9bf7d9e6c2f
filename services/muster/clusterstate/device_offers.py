"""What nodes offer of devices. Many selectors are evaluated in steps before a node's devices are counted (I12)."""

from collections.abc import Collection, Iterator
from typing import Final

from muster.clusterstate.device_claims import DeviceClaims
from muster.gangs.facts import Amounts, NodeFacts

MANY_EVALUATIONS: Final = 512
"""Evaluations for the devices of one node that are made with its count: 5 ms, or 50 ms with costly expressions."""
WEIGHT_OF_EVALUATION: Final = 40
"""Processor time of one step, a list of selectors for one slice with at most 128 devices, in multiples of a pod's."""

Offers = tuple[Amounts, Amounts]
"""Resources that stand for devices, and extended resources that the node offers as devices."""

_NOTHING: Final[Offers] = ((), ())


class DeviceOffers:
    """Offers by node. While selectors are evaluated for the devices of a node, it offers what it offered before.

    All that is known of a node ends with `drop_node` (I11).
    """

    def __init__(self, claims: DeviceClaims) -> None:
        self._claims = claims
        self._offers: dict[str, Offers] = {}
        self._steps: dict[str, Iterator[None]] = {}
        """Evaluations under way."""
        self._begun: dict[str, None] = {}
        self._evaluated: set[str] = set()
        """Nodes whose evaluation has ended, until their devices are counted."""

    def of(self, node: NodeFacts) -> Offers:
        """What the node offers, or offered before its evaluation began."""
        if node.name in self._evaluated:
            self._evaluated.discard(node.name)
        elif node.name in self._steps or self._begins(node):
            return self._offers.get(node.name, _NOTHING)
        offers = self._claims.offered(node), self._claims.extended.offered(node)
        if offers == _NOTHING:
            self._offers.pop(node.name, None)
        else:
            self._offers[node.name] = offers
        return offers

    def _begins(self, node: NodeFacts) -> bool:
        """So many selectors are to be evaluated for the node's devices that it is done in steps."""
        devices, lists = self._claims.objects.devices, self._claims.selector_lists
        left = MANY_EVALUATIONS
        for slice_, _ in devices.unevaluated(node, lists) if lists else ():
            left -= len(slice_.devices)
            if left < 0:
                self._steps[node.name] = devices.evaluate(node, lists)
                self._begun[node.name] = None
                return True
        return False

    def take_begun(self) -> Collection[str]:
        """Nodes of which the evaluation began since the last call: `evaluate` has to follow."""
        begun, self._begun = self._begun, {}
        return begun

    def evaluate(self, name: str) -> bool:
        """One step for a node. False: it was the last one, and the node's offers are to be computed."""
        steps = self._steps.get(name)
        if steps is None:
            return False
        for _ in steps:
            return True
        del self._steps[name]
        self._evaluated.add(name)
        return False

    def begin_again(self, nodes: Collection[str]) -> None:
        """The devices of nodes changed, or the selectors: evaluations under way are of the past."""
        for name in nodes if self._steps else ():
            self._steps.pop(name, None)

    def drop_node(self, name: str) -> None:
        self._offers.pop(name, None)
        self._steps.pop(name, None)
        self._begun.pop(name, None)
        self._evaluated.discard(name)
