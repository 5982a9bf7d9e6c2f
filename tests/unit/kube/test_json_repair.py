"""Repaired JSON can be decoded, and says the same wherever the original could be."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube import json_repair
from muster.kube.json_repair import CUT, MAX_NESTING, repaired, shallow

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text('[]{}"\\\\ü', max_size=6)),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text('[{"\\\\a', max_size=3), below, max_size=3),
)


@given(values)
def test_shallow_values_stay_as_they_are(value: Any) -> None:
    text = json.dumps(value).encode()
    assert repaired(text) is text


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@given(before=values, deep=values, after=values, closing=st.sampled_from(["[]", "{}"]))
def test_only_what_is_nested_too_deeply_is_cut(block: int, before: Any, deep: Any, after: Any, closing: str) -> None:
    levels = MAX_NESTING + 5
    opened, closed = ('{"a":', "}") if closing == "{}" else ("[", "]")
    nested = opened * levels + json.dumps(deep) + closed * levels
    text = f"[{json.dumps(before)},{nested},{json.dumps(after)}]".encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_repair, "_BLOCK_BYTES", block)
        first, cut, last = msgspec.json.decode(shallow(text))
    assert (first, last) == (before, after)
    for _ in range(MAX_NESTING - 1):
        (cut,) = cut.values() if isinstance(cut, dict) else cut
    assert cut == CUT


@pytest.mark.parametrize("levels", [101, 1_000, 1_000_000])
def test_any_number_of_levels_can_be_decoded(levels: int) -> None:
    assert msgspec.json.decode(repaired(b"[" * levels + b"]" * levels))


@pytest.mark.parametrize("text", [b"[" * 300, b'["' + b"[" * 300, b"]" * 300, b'{"a":[' * 300 + b'"'])
def test_text_that_is_not_json_stays_so(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(repaired(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"\xff"', "\ufffd"),
        (b'"\\ud800"', "\ufffd"),
        (b'"\\uDC00x"', "\ufffdx"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\ud83d\\ud83d\\ude00"', "\ufffd\U0001f600"),
        (b'"\\\\ud800"', "\\ud800"),
    ],
)
def test_text_that_is_no_unicode_is_replaced(text: bytes, value: str) -> None:
    assert msgspec.json.decode(repaired(text)) == value
