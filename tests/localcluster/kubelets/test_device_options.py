"""The option for simulated devices."""

import pytest

from muster.localcluster.kubelets import simulated_nodes
from muster.localcluster.kubelets.devices.cards import CardKind, Cards, slice_specs
from muster.localcluster.kubelets.devices.options import BadDevices, default_devices, parse_devices


def test_an_option_is_for_a_range_of_nodes() -> None:
    nodes = simulated_nodes(4, devices=[parse_devices("gpu:8@1-2"), parse_devices("mig:1@3")])
    gpus = Cards(CardKind.GPU, 8)
    assert [node.cards for node in nodes] == [None, gpus, gpus, Cards(CardKind.MIG, 1)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["gpu"], '"gpu" is not of the form KIND:CARDS@FIRST-LAST, e.g. gpu:8@0-3'),
        (["tpu:8@0"], '"tpu:8@0": there is no kind "tpu"; kinds are gpu, mig, nvlink'),
        (["gpu:0@0"], '"gpu:0@0": a node has 1 to 16 cards, not 0'),
        (["gpu:17@0"], '"gpu:17@0": a node has 1 to 16 cards, not 17'),
        (["gpu:1@3-2"], '"gpu:1@3-2": the last node comes before the first one'),
        (["gpu:1@2-4"], '"gpu:1@2-4": there is no node 4; the last one is 3'),
        (["gpu:1@0-2", "mig:1@2"], '"mig:1@2": node 2 has devices by "gpu:1@0-2" already'),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_an_unusable_option_is_quoted(options: list[str], problem: str) -> None:
    with pytest.raises(BadDevices) as error:
        simulated_nodes(4, devices=[parse_devices(each) for each in options])
    assert str(error.value) == problem


def test_the_default_devices_are_on_the_last_ten_nodes() -> None:
    for count in (10, 20, 5000):
        nodes = simulated_nodes(count, devices=[parse_devices(each) for each in default_devices(count)])
        kinds = [node.cards.kind for node in nodes if node.cards is not None]
        assert kinds == [CardKind.GPU] * 4 + [CardKind.MIG] * 2 + [CardKind.NVLINK] * 4
        assert len({node.labels.get("nvidia.com/gpu.clique") for node in nodes[-4:]}) == 1
    assert default_devices(9) == ()


@pytest.mark.parametrize("count", [1, 4, 5, 8, 9, 16])
def test_slices_of_partitionable_cards_are_within_the_limits_of_the_api(count: int) -> None:
    specs = slice_specs("n", Cards(CardKind.MIG, count))
    assert {each["pool"]["resourceSliceCount"] for each in specs} == {len(specs)}
    assert sum(len(each.get("devices", ())) for each in specs) == 14 * count
    assert all(len(each.get("devices", ())) <= 64 and len(each.get("sharedCounters", ())) <= 8 for each in specs)
