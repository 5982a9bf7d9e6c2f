"""One evaluation for devices that an expression cannot tell apart."""

import pytest

from builders.cel import DRIVER, FIELDS, GPU, IDIOMS, MISSING, gpu, outcome
from muster.cel.errors import BadExpression, CostLimitExceeded, EvaluationFailed
from muster.cel.paths import Path
from muster.cel.results import ResultCache
from muster.cel.selector import compile_selector

NAME = ("attributes", "d", "name")
READS = {
    "true": [],
    "device.driver == 'a'": [("driver",)],
    "device.attributes['d'].name == 1": [NAME],
    "device.attributes['d']['name'] == 1 && device.attributes.d.name == 1": [NAME],
    "has(device.attributes['d'].name)": [NAME],
    "'name' in device.attributes['d']": [NAME],
    "device.attributes['d'].?name.orValue(1) == 1": [NAME],
    "device.attributes[?'d'].orValue({}).?name.orValue(1) == 1": [NAME],
    "cel.bind(d, device.attributes['d'], d.name == 1 && has(d.name))": [NAME],
    "cel.bind(d, device, d.attributes['d'].name == 1)": [NAME],
    "cel.bind(d, device.attributes['d'], cel.bind(d, d.name, d == 1))": [NAME],
    "[1].exists(x, device.attributes['d'].name == x)": [NAME],
    "[{'driver': 1}].exists(device, device.driver == 1)": [],
    "cel.bind(device, {'driver': 1}, device.driver == 1)": [],
    "device.attributes['d'].name.first().value() == 1": [NAME],
    "device.capacity['d'].memory.isGreaterThan(quantity('1'))": [("capacity", "d", "memory")],
    "device.allowMultipleAllocations": [("allowMultipleAllocations",)],
    "device.attributes['d'].exists(k, k == 'name')": [("attributes", "d")],
    "device.attributes['d'].exists(k, v, v == 1) && device.attributes['d'].name == 1": [("attributes", "d")],
    "device.attributes['d'][device.driver] == 1": [("attributes", "d"), ("driver",)],
    "device.attributes.size() == 1 && device.attributes['d'].name == 1": [("attributes",)],
    "'d' in device.attributes": [("attributes", "d")],
    "cel.bind(d, [device], d[0].driver == 'a')": [()],
    "optional.of(device.attributes['d']).optMap(d, d.name == 1).orValue(false)": [("attributes", "d")],
    "[1].map(x, device)[0].driver == 'a'": [()],
    "cel.bind(d, device.driver, [1].exists(i, v, d == 'a'))": [("driver",)],
    "cel.bind(d, device.driver == 'a', [1].map(x, d)[0])": [("driver",)],
    "device.attributes['d'].orValue(1) == 1": [("attributes", "d")],
}


@pytest.mark.parametrize("expression", READS)
def test_what_an_expression_reads(expression: str) -> None:
    assert list(compile_selector(expression).reads) == READS[expression]


def kept(paths: tuple[Path, ...], field: str, name: str) -> bool:
    domain, slash, identifier = name.rpartition("/")
    whole = (field, domain if slash else DRIVER, identifier)
    return any(path == whole[: len(path)] for path in paths)


@pytest.mark.parametrize("expression", [case[0] for case in [*FIELDS, *MISSING, *IDIOMS]], ids=lambda text: text[:60])
def test_what_is_not_read_does_not_matter(expression: str) -> None:
    try:
        paths = compile_selector(expression).reads
    except BadExpression:
        return
    changes = {
        field: {name: value for name, value in GPU[field].items() if kept(paths, field, name)}
        for field in ("attributes", "capacity")
    }

    reason = str(outcome(expression)).split(" (the map has")[0]
    assert str(outcome(expression, gpu(**changes))).split(" (the map has")[0] == reason


def numbered(number: int, **attributes: object) -> dict[str, object]:
    return {**GPU["attributes"], "uuid": {"string": f"GPU-{number}"}, **attributes}


def test_devices_that_differ_in_what_is_not_read_are_evaluated_once() -> None:
    results = ResultCache()
    selector = compile_selector('device.attributes["gpu.example.com"].model.matches("H100")')

    assert all(results.matches(selector, gpu(attributes=numbered(number))) for number in range(100))
    assert not results.matches(selector, gpu(attributes=numbered(1, model={"string": "A100"})))
    assert results.evaluations == 2
    assert results.cost > 0


def test_an_absent_attribute_differs_from_any_value() -> None:
    results = ResultCache()
    selector = compile_selector('has(device.attributes["gpu.example.com"].zone)')

    assert not results.matches(selector, gpu())
    assert results.matches(selector, gpu(attributes=numbered(1, zone={"string": ""})))


@pytest.mark.parametrize(("value", "matches"), [({"int": 1}, True), ({"bool": True}, False), ({"string": "1"}, False)])
def test_values_of_different_types_are_evaluated_separately(value: dict[str, object], matches: bool) -> None:
    results = ResultCache()
    selector = compile_selector('device.attributes["gpu.example.com"].n == 1')
    for other in ({"int": 1}, {"bool": True}, {"string": "1"}, {"ints": [1]}, {"version": "1.0.0"}):
        if other != value and "version" not in other:
            results.matches(selector, gpu(attributes=numbered(1, n=other)))

    assert results.matches(selector, gpu(attributes=numbered(1, n=value))) is matches


def test_errors_are_kept_and_raised_again() -> None:
    results = ResultCache()
    missing = compile_selector('device.attributes["gpu.example.com"].zone == "a"')
    endless = compile_selector("lists.range(9000).all(x, lists.range(9000).all(y, true))")

    for _ in range(3):
        with pytest.raises(EvaluationFailed, match="no such key: zone"):
            results.matches(missing, gpu())
        with pytest.raises(CostLimitExceeded):
            results.matches(endless, gpu())
    assert results.evaluations == 2
    assert results.cost > 1_000_000


def test_results_are_bounded() -> None:
    results = ResultCache(max_bytes=64 * 1024)
    selector = compile_selector('device.attributes["gpu.example.com"].uuid == "GPU-1"')
    for number in range(2000):
        assert results.matches(selector, gpu(attributes=numbered(number))) is (number == 1)

    assert results.kept_bytes <= 64 * 1024
