"""Values in marks: accepted values, and messages about invalid ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.dialects.values import (
    BadValue,
    parse_count,
    parse_duration_seconds,
    parse_gang_group,
    parse_gang_name,
    parse_seconds,
    quoted_value,
)


@pytest.mark.parametrize(
    ("value", "number"), [("1", 1), ("+5", 5), ("007", 7), ("2147483647", 2147483647), (3, 3), (2147483647, 2147483647)]
)
def test_valid_counts(value: object, number: int) -> None:
    assert parse_count(value) == number


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("five", '"five", which is not a whole number'),
        ("", '"", which is not'),
        ("5.0", '"5.0", which is not'),
        (" 5", '" 5", which is not'),
        ("5\n", "which is not"),
        ("1_000", "which is not"),
        ("٣", "which is not"),
        ("0x3", "which is not"),
        (True, '"true", which is not'),
        (3.0, '"3.0", which is not'),
        ([3], '"[3]", which is not'),
        ({}, '"{}", which is not'),
        (None, "missing"),
        ("0", '"0", but it must be at least 1'),
        ("-1", '"-1", but it must be at least 1'),
        (0, '"0", but it must be at least 1'),
        (-1, '"-1", but it must be at least 1'),
        ("2147483648", "but it must be at most 2147483647"),
        ("9" * 400, '…", but it must be at most'),
        (10**30, "but it must be at most"),
        ("9" * 1_000_000, '…", which is not'),
    ],
)
def test_invalid_counts(value: object, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_count(value)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1200s", 1200),
        ("10m", 600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("+3s", 3),
        ("100ms", 0.1),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("2ns", 2e-9),
        ("1h1m1s1ms", 3661.001),
        ("292y".replace("y", "h"), 292 * 3600),
    ],
)
def test_durations(text: str, expected: float) -> None:
    assert parse_duration_seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("600", '"600", which is not a duration'),
        ("", '"", which is not'),
        ("s", "which is not"),
        (".s", "which is not"),
        ("1d", "which is not"),
        ("1 h", "which is not"),
        ("1h-5m", "which is not"),
        ("ten minutes", '"ten minutes", which is not'),
        ("9" * 100_000 + "s", "which is not"),
        ("0", '"0", but it must be above zero'),
        ("0s", "above zero"),
        ("-5s", '"-5s", but it must be above zero'),
        ("9999999h", "below 292 years"),
    ],
)
def test_bad_durations(text: str, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_duration_seconds(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("value", ["10", True, 1.5, 0, -1, 2**31, [1]])
def test_bad_seconds(value: object) -> None:
    with pytest.raises(BadValue):
        parse_seconds(value)


def test_seconds() -> None:
    assert parse_seconds(600) == 600.0


@pytest.mark.parametrize("name", ["a", "A", "train-7", "a.b_c-D", "7", "x" * 253])
def test_names(name: str) -> None:
    assert parse_gang_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "a/b", "a b", "ä", "a\n", "x" * 254, "_", "x" * 1_000_000])
def test_bad_names(name: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_gang_name(name)
    assert len(str(caught.value)) < 300


def test_gang_groups_are_sorted_without_duplicates() -> None:
    assert parse_gang_group('["b/B", "a/A", "b/B"]') == (("a", "A"), ("b", "B"))
    assert parse_gang_group("[]") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a/A", '"a/A", which is not a JSON list'),
        ("", "which is not a JSON list"),
        ('"a/A"', "which is not a JSON list"),
        ('{"a": "A"}', "which is not a JSON list"),
        ('["a/A"', "which is not a JSON list"),
        ("[" * 100_000, "which is not a JSON list"),
        ('["A"]', 'a list with "A" in it, which is not "namespace/name"'),
        ('["a/A", 7]', 'a list with "7" in it'),
        ('["a/A", null]', 'a list with "null" in it'),
        ('["a/b/c"]', '"a/b/c"'),
        ('["/A"]', '"/A"'),
        ('["a/"]', '"a/"'),
        ('["Upper/A"]', '"Upper/A"'),
        ('["a b/A"]', '"a b/A"'),
        ('["' + "n" * 64 + '/A"]', "nnnn"),
        ("[" + ",".join(f'"a/g{i}"' for i in range(101)) + "]", "a list of 101 gangs, but a group has at most 100"),
        ('["' + "x" * 1_000_000 + '"]', "…"),
    ],
)
def test_bad_groups(text: str, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_gang_group(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 250


def test_100_gangs_are_a_group() -> None:
    assert len(parse_gang_group("[" + ",".join(f'"a/g{i}"' for i in range(100)) + "]")) == 100


@given(st.text() | st.integers() | st.floats() | st.none() | st.lists(st.integers()) | st.booleans())
def test_quoted_values_are_short(value: object) -> None:
    text = quoted_value(value)
    assert text[0] == text[-1] == '"'
    assert len(text) <= 66


@given(st.text(max_size=20) | st.text('0123456789.+-hmsuµn []",/ab', max_size=20))
def test_every_text_is_a_value_or_refused(text: str) -> None:
    for read in (parse_count, parse_duration_seconds, parse_gang_group, parse_gang_name):
        try:
            read(text)
        except BadValue as error:
            assert len(str(error)) < 300
