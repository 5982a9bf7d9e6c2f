"""The simulated devices and their classes, with Muster's allocation of devices."""

from typing import Any

import pytest

from builders.devices.objects import claim, request
from muster.cel.selection import DeviceSelection
from muster.devices.allocation import Devices
from muster.devices.decoding import decode_claim, decode_class, decode_slice
from muster.devices.search import Outcome
from muster.gangs.facts import NodeFacts
from muster.localcluster.device_classes import device_classes
from muster.localcluster.kubelets.devices.cards import CardKind, Cards, slice_specs

NODE = NodeFacts("n")
GPU, MIG = "gpu.example.com", "mig.example.com"
SAME_ROOT = [{"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}]


def devices_of(kind: CardKind, count: int) -> Devices:
    devices = Devices(DeviceSelection().matches)
    for index, spec in enumerate(slice_specs("n", Cards(kind, count))):
        devices.put_slice(decode_slice({"metadata": {"name": f"s{index}"}, "spec": spec}))
    for each in device_classes():
        devices.put_class(decode_class(each.body))
    return devices


def selecting(expression: str) -> Any:
    return {"selectors": [{"cel": {"expression": f"device.attributes['{GPU}'].{expression}"}}]}


@pytest.mark.parametrize(
    ("cards", "asked", "constraints", "pods"),
    [
        (Cards(CardKind.GPU, 4), request(count=2), [], 2),
        (Cards(CardKind.GPU, 3), request(count=2), SAME_ROOT, 1),
        (Cards(CardKind.NVLINK, 4), request(**selecting("architecture == 'Blackwell'")), [], 4),
        (Cards(CardKind.GPU, 4), request(device_class=MIG), [], 0),
        (Cards(CardKind.MIG, 2), request(), [], 2),
        (Cards(CardKind.MIG, 2), request(device_class=MIG, **selecting("profile == '1g.10gb'")), [], 14),
        (Cards(CardKind.MIG, 1), request(device_class=MIG, **selecting("profile == '2g.20gb'")), [], 3),
        (Cards(CardKind.MIG, 1), request(device_class=MIG, **selecting("profile.startsWith('3g')")), [], 2),
        (Cards(CardKind.MIG, 5), request(device_class=MIG, **selecting("profile == '7g.80gb'")), [], 5),
    ],
    ids=["gpus", "one root", "nvlink", "no partitions", "cards", "1g", "2g", "3g", "7g"],
)
def test_as_many_pods_fit_as_cards_and_counters_allow(cards: Cards, asked: Any, constraints: Any, pods: int) -> None:
    claims = [decode_claim(claim("c", asked, constraints=constraints))]
    assert devices_of(cards.kind, cards.count).how_many(NODE, claims, 100).number == pods


def test_a_whole_card_leaves_nothing_to_its_partitions() -> None:
    devices = devices_of(CardKind.MIG, 1)
    whole = devices.allocate(NODE, [decode_claim(claim("c", request()))])
    assert whole.outcome is Outcome.FOUND
    devices.allocate_ids(each.id for each in whole.allocations[0].results)
    partition = devices.allocate(NODE, [decode_claim(claim("c", request(device_class=MIG)))])
    assert partition.outcome is Outcome.IMPOSSIBLE
