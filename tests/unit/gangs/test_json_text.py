"""JSON in marks: what is nested too deeply to be compared or printed is rejected."""

import json

import pytest

from muster.gangs.json_text import MAX_NESTING, BadJson, decode_json, decode_json_pairs


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 500, 900, 5_000, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_rejected(levels: int, opened: str, closed: str) -> None:
    text = opened * levels + "1" + closed * levels
    for decode in (decode_json, lambda text: decode_json_pairs(text, dict), lambda text: decode_json_pairs(text, list)):
        with pytest.raises(BadJson, match="nested deeper than 100 levels"):
            decode(text)


@pytest.mark.parametrize("text", ["", "{", "\ud800", '"\\ud800"', "1e999999", "9" * 5000])
def test_text_that_is_not_json_is_rejected(text: str) -> None:
    with pytest.raises(BadJson):
        decode_json(text)


def test_shallow_values_are_read() -> None:
    text = "[" * MAX_NESTING + "]" * MAX_NESTING
    assert decode_json(text) == json.loads(text) == decode_json_pairs(text, dict)
