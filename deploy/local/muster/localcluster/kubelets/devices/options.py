"""The option for simulated devices: KIND:CARDS@FIRST-LAST, e.g. gpu:8@0-3 for the first four nodes."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from muster.gangs.quoting import quoted
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

MAX_CARDS: Final = 16
"""Cards of one node."""

_FORM: Final = re.compile(r"([a-z]+):([0-9]{1,4})@([0-9]{1,6})(?:-([0-9]{1,6}))?")
_KINDS: Final = {str(kind): kind for kind in CardKind}
_NODES_WITH_DEVICES: Final = 10


class BadDevices(ValueError):
    """An option for devices that cannot be used; the message quotes it."""


class DeviceOption(Struct, frozen=True):
    """Cards of each node from index `first` to `last`."""

    text: str
    cards: Cards
    first: int
    last: int


def parse_devices(text: str) -> DeviceOption:
    """Raises BadDevices."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadDevices(f"{quoted(text)} is not of the form KIND:CARDS@FIRST-LAST, e.g. gpu:8@0-3")
    kind, count, first, last = match.groups()
    if kind not in _KINDS:
        raise BadDevices(f"{quoted(text)}: there is no kind {quoted(kind)}; kinds are {', '.join(_KINDS)}")
    if not 1 <= int(count) <= MAX_CARDS:
        raise BadDevices(f"{quoted(text)}: a node has 1 to {MAX_CARDS} cards, not {count}")
    if int(last or first) < int(first):
        raise BadDevices(f"{quoted(text)}: the last node comes before the first one")
    return DeviceOption(text, Cards(_KINDS[kind], int(count)), int(first), int(last or first))


def options_by_node(options: Sequence[DeviceOption], nodes: int) -> dict[int, DeviceOption]:
    """Index of a node -> the option that gives it devices. Raises BadDevices."""
    found: dict[int, DeviceOption] = {}
    for option in options:
        if option.last >= nodes:
            raise BadDevices(f"{quoted(option.text)}: there is no node {option.last}; the last one is {nodes - 1}")
        for index in range(option.first, option.last + 1):
            if index in found:
                raise BadDevices(
                    f"{quoted(option.text)}: node {index} has devices by {quoted(found[index].text)} already"
                )
            found[index] = option
    return found


def default_devices(nodes: int) -> tuple[str, ...]:
    """Devices of the last ten nodes: four with GPUs, two with MIG-capable GPUs, four in an NVLink domain.

    Fewer than ten nodes have none.
    """
    first = nodes - _NODES_WITH_DEVICES
    if first < 0:
        return ()
    return (f"gpu:4@{first}-{first + 3}", f"mig:1@{first + 4}-{first + 5}", f"nvlink:4@{first + 6}-{first + 9}")
