"""Nodes on which pods that share an unallocated claim can use its devices together."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from muster.devices.facts import Allocation, Claim, Device, DeviceClass, Selection, Slice
from muster.devices.selectors import SelectorResults
from muster.gangs.facts import NodeOperator

HOSTNAME: Final = "kubernetes.io/hostname"
"""Label that tells nodes apart: the kubelet sets it on its node."""


class Reach(NamedTuple):
    """Pods that share the claim go to nodes that `selector` selects, with one value of the label `topology_key`. None
    and "": they may go to any.
    """

    topology_key: str = ""
    selector: Selection = None


ON_ONE_NODE: Final = Reach(HOSTNAME)


def reach_of(
    claim: Claim, classes: Mapping[str, DeviceClass], slices: Iterable[Slice], results: SelectorResults
) -> Reach:
    """The reach of devices that the claim's requests select, whichever of them is chosen.

    Pods share one node if one of these devices is local to a node, if there are none, or if their node selectors are
    more than values of one label.
    """
    selections = [
        classes[each.device_class].selectors + each.selectors
        for request in claim.requests
        for each in request.alternatives
        if each.device_class in classes
    ]
    selectors: dict[Selection, None] = {}
    for slice_ in slices:
        for reach in _reaches(slice_, selections, results):
            if reach.topology_key:
                return ON_ONE_NODE
            selectors[reach.selector] = None
    limited = [each for each in selectors if each is not None]
    if not limited:
        return Reach() if selectors else ON_ONE_NODE
    if len(limited) == 1:
        return Reach(selector=limited[0])
    keys = {_only_label(each) for each in limited}
    return Reach(keys.pop()) if len(keys) == 1 and "" not in keys else ON_ONE_NODE


def is_on_one_node(allocation: Allocation) -> bool:
    """The devices are those of one node, or can be used on one node only."""
    if allocation.node_selector is None or len(allocation.node_selector) != 1:
        return False
    [term] = allocation.node_selector
    names = [each for each in term.labels if each.key == HOSTNAME]
    return any(each.operator is NodeOperator.IN and len(each.values) == 1 for each in (*term.fields, *names))


def _reaches(slice_: Slice, selections: Iterable[tuple[str, ...]], results: SelectorResults) -> Iterator[Reach]:
    """The reach of each selected device; once for all of them if the slice selects the nodes."""
    for selection in selections:
        outcomes = results.excluded_by(slice_, selection)
        for device, outcome in zip(slice_.devices, outcomes, strict=True):
            if outcome != len(selection):
                continue
            source: Slice | Device = device if slice_.per_device else slice_
            yield ON_ONE_NODE if source.node_name or device.binds_to_node else Reach(selector=source.node_selector)
            if not slice_.per_device and not any(each.binds_to_node for each in slice_.devices):
                break


def _only_label(selector: Selection) -> str:
    """The label of which the selector requires one value; empty: it requires something else."""
    if selector is None or len(selector) != 1 or selector[0].fields or len(selector[0].labels) != 1:
        return ""
    [requirement] = selector[0].labels
    return requirement.key if requirement.operator is NodeOperator.IN and len(requirement.values) == 1 else ""
