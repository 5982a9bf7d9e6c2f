"""Facts of the nodes, and which changes of them are streamed."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from muster.gangs.facts import Amounts, NodeFacts
from muster.kube.node_facts import node_facts, node_problems
from muster.kube.objects import Node

_log = structlog.get_logger(__name__)


class Offer(NamedTuple):
    """Offers of a node besides its own: resources and labels that stand for volumes and devices, and extended resources
    that it offers as devices if it offers none itself.
    """

    amounts: Amounts = ()
    labels: Mapping[str, str] = {}
    extended: Amounts = ()


class Nodes:
    """Facts by node name. An update that changes no fact but the revision, such as a heartbeat, is not streamed.

    Entries end with the node (I11).
    """

    def __init__(self, offered: Callable[[NodeFacts], Offer]) -> None:
        """`offered`: returns the offers of a node besides its status.allocatable and labels."""
        self.facts: dict[str, NodeFacts] = {}
        self._offered = offered
        self._own: dict[str, tuple[Amounts, dict[str, str]]] = {}  # status.allocatable and labels
        self._names: dict[str, str] = {}  # uid -> name
        self._problems: dict[str, tuple[str, ...]] = {}

    def put(self, node: Node) -> NodeFacts | None:
        """Add or update a node; returns its facts if they differ."""
        facts = node_facts(node)
        self._report(facts.name, node_problems(node))
        self._own[facts.name] = facts.allocatable, facts.labels
        facts = self._completed(facts)
        before = self.facts.get(facts.name)
        self.facts[facts.name] = facts
        self._names[facts.uid] = facts.name
        if before is not None and _same(before, facts):
            return None
        return facts

    def refresh(self, name: str) -> NodeFacts | None:
        """Compute again what a node offers; returns its facts if they differ."""
        before = self.facts.get(name)
        if before is None:
            return None
        facts = self.facts[name] = self._completed(before)
        return None if facts == before else facts

    def _completed(self, facts: NodeFacts) -> NodeFacts:
        own, labels = self._own[facts.name]
        offer = self._offered(facts)
        more, more_labels = offer.amounts, offer.labels
        backed: tuple[str, ...] = ()
        if offer.extended:
            offers = dict(own)
            by_devices = {name: amount for name, amount in offer.extended if not offers.get(name)}
            more, backed = (*more, *by_devices.items()), tuple(sorted(by_devices))
        if not more and not more_labels:
            if facts.allocatable is own and facts.labels is labels and not facts.device_backed:
                return facts
            return replace(facts, allocatable=own, labels=labels, device_backed=())
        amounts = tuple(sorted({**dict(own), **dict(more)}.items()))
        shown = {**labels, **more_labels} if more_labels else labels
        return replace(facts, allocatable=amounts, labels=shown, device_backed=backed)

    def remove(self, uid: str) -> str | None:
        """Remove a node; returns its name, or None if another node has that name by now."""
        name = self._names.pop(uid, None)
        if name is None or (facts := self.facts.get(name)) is None or facts.uid != uid:
            return None
        del self.facts[name], self._own[name]
        self._problems.pop(name, None)
        return name

    def _report(self, name: str, problems: tuple[str, ...]) -> None:
        if problems != self._problems.get(name, ()):
            self._problems[name] = problems
            if problems:
                _log.warning("node_partly_invalid", node=name, problems=problems)


def _same(one: NodeFacts, other: NodeFacts) -> bool:
    """The two are equal in all fields but `revision`, which every update changes."""
    return replace(one, revision=other.revision) == other
