"""Expressions over devices."""

import pytest

from builders.cel import DRIVER, FIELDS, IDIOMS, MISSING, Case, agrees, gpu, outcome
from muster.cel.device import BadDevice, device_of_slice

CASES = [*FIELDS, *MISSING, *IDIOMS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0][:60])
def test_an_expression_selects_as_in_kubernetes(case: Case) -> None:
    assert agrees(case), outcome(case[0])


def test_a_name_with_a_domain_does_not_belong_to_the_driver() -> None:
    assert outcome(f'"rack" in device.attributes["{DRIVER}"]') is False
    assert outcome('device.attributes["other.example.com"].rack == "r7"') is True


def test_a_variable_may_hide_the_device() -> None:
    assert outcome("[{'driver': 'x'}].all(device, device.driver == 'x')") is True


def test_a_device_that_may_be_allocated_several_times() -> None:
    assert outcome("device.allowMultipleAllocations", gpu(allowMultipleAllocations=True)) is True


def test_an_error_quotes_the_expression_the_part_and_the_reason() -> None:
    message = outcome('device.driver == "x" || device.attributes["gpu.example.com"].sku == 7')

    assert 'failed in "device.attributes["gpu.example.com"].sku": no such key: sku' in str(message)
    assert "test for it with has() or in" in str(message)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"attributes": {"v": {"version": "1"}}}, 'attribute "v": "1" is not a semantic version'),
        ({"attributes": {"v": {}}}, 'attribute "v" has none of int, bool, string, version'),
        ({"attributes": {"v": None}}, 'attribute "v" has none of'),
        ({"attributes": {"v": {"int": "1"}}}, 'attribute "v" has none of'),
        ({"attributes": {"v": {"int": 2**63}}}, "beyond 64 bits"),
        ({"attributes": []}, None),
        ({"attributes": [1]}, "attributes is not a map"),
        ({"capacity": {"m": {"value": "1Q"}}}, 'capacity "m": "1Q" is not a quantity'),
        ({"capacity": {"m": {}}}, 'capacity "m"'),
    ],
)
def test_a_malformed_device_is_refused_with_the_field(raw: dict[str, object], reason: str | None) -> None:
    if reason is None:
        assert device_of_slice("d", raw).attributes == {}
        return
    with pytest.raises(BadDevice, match=reason.replace("(", r"\(")):
        device_of_slice("d", raw)
