"""Expressions over the facts of devices."""

import pytest

from muster.cel.selection import MAX_COST, MEAN_COST, DeviceSelection
from muster.devices.facts import Attribute, Device, Slice, Version
from muster.devices.selectors import SelectorError, SelectorResults

DRIVER = "gpu.example.com"
GIB = 2**30 * 10**9


def card(number: int, driver: str = DRIVER, **attributes: Attribute) -> Device:
    known: dict[str, Attribute] = {"type": "gpu", "uuid": f"u{number}", **attributes}
    return Device(f"gpu-{number}", driver, known, {"memory": 80 * GIB})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("device.driver == 'gpu.example.com'", True),
        ("device.attributes['gpu.example.com'].type == 'gpu'", True),
        ("device.attributes['gpu.example.com'].version.isLessThan(semver('2.0.0'))", True),
        ("device.attributes['gpu.example.com'].healthy == true", True),
        ("device.attributes['gpu.example.com'].index == 1", False),
        ("device.capacity['gpu.example.com'].memory == quantity('80Gi')", True),
        ("device.capacity['gpu.example.com'].memory.isInteger()", True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_facts_are_values_of_expressions(expression: str, expected: bool) -> None:
    device = card(1, version=Version("1.2.3"), healthy=True, index=7)

    assert DeviceSelection().matches(expression, device) is expected


def test_equal_devices_of_two_drivers_are_told_apart() -> None:
    selection = DeviceSelection()

    assert selection.matches("device.driver == 'a'", card(1, "a"))
    assert not selection.matches("device.driver == 'a'", card(1, "b"))
    assert selection.matches("'type' in device.attributes['a']", card(1, "a"))
    assert not selection.matches("'type' in device.attributes['a']", card(1, "b"))


@pytest.mark.parametrize(
    ("expression", "device", "reason"),
    [
        ("device.driver ==", card(1), "is invalid at character 17"),
        ("device.attributes['gpu.example.com'].zone == 'a'", card(1), "no such key: zone"),
        ("true", card(1, version=Version("1")), 'for device gpu-1: attribute "version": "1" is not a semantic version'),
    ],
)
def test_what_cannot_be_evaluated_is_a_selector_error(expression: str, device: Device, reason: str) -> None:
    with pytest.raises(SelectorError, match=reason.replace("(", r"\(")):
        DeviceSelection().matches(expression, device)


def test_an_expression_that_costs_too_much_costs_its_limit_once() -> None:
    selection = DeviceSelection()
    endless = (
        "device.attributes['gpu.example.com'].uuid == '' || lists.range(9000).all(x, lists.range(9000).all(y, true))"
    )
    for number in range(20):
        with pytest.raises(SelectorError, match=f"costs more than {MAX_COST} units"):
            selection.matches(endless, card(number))

    assert selection.cost == MAX_COST


def test_an_expression_that_costs_much_for_many_devices_fails_for_all() -> None:
    """Each evaluation costs less than the limit."""
    selection = DeviceSelection()
    long = "device.attributes['gpu.example.com'].uuid != '' && lists.range(1000).all(x, x >= 0)"
    evaluated = 0
    with pytest.raises(SelectorError, match=f"more than the {MEAN_COST} permitted"):
        for number in range(1000):
            assert selection.matches(long, card(number))
            evaluated += 1
    assert 1 < evaluated < 50
    spent = selection.cost
    with pytest.raises(SelectorError):
        selection.matches(long, card(2000))
    assert selection.cost == spent
    usual = "device.attributes['gpu.example.com'].uuid.startsWith('u')"
    assert all(selection.matches(usual, card(number)) for number in range(5000))


def test_the_selectors_of_a_request_are_evaluated_for_the_devices_of_a_slice() -> None:
    devices = (card(1), card(2, type="mig"), card(3, index=1))
    selectors = ("device.driver == 'gpu.example.com'", "device.attributes['gpu.example.com'].type == 'gpu'")
    results = SelectorResults(DeviceSelection().matches)

    assert results.excluded_by(Slice("s", DRIVER, "p", devices=devices), selectors) == (2, 1, 2)
    assert results.excluded_by(
        Slice("t", DRIVER, "p", devices=devices), ("device.attributes['gpu.example.com'].index == 1",)
    ) == (-1, -1, 1)
