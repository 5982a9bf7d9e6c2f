"""Quantities have the same value as in Kubernetes, to the last billionth."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.gangs.quantity import INT64_MAX, INT64_MIN, BadQuantity, parse_quantity, to_amount
from muster.gangs.quoting import quoted

UNIT = 10**9


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("-0", 0),
        ("1", UNIT),
        ("+1", UNIT),
        ("-1", -UNIT),
        ("007", 7 * UNIT),
        ("1.5", 15 * UNIT // 10),
        (".5", UNIT // 2),
        ("5.", 5 * UNIT),
        ("-.5", -UNIT // 2),
        ("100m", UNIT // 10),
        ("0.1m", UNIT // 10**4),
        ("250u", 250_000),
        ("3n", 3),
        ("2k", 2000 * UNIT),
        ("2M", 2 * 10**6 * UNIT),
        ("2G", 2 * 10**9 * UNIT),
        ("2T", 2 * 10**12 * UNIT),
        ("2P", 2 * 10**15 * UNIT),
        ("2E", 2 * 10**18 * UNIT),
        ("1Ki", 2**10 * UNIT),
        ("2048Mi", 2**31 * UNIT),
        ("1.5Gi", 3 * 2**29 * UNIT),
        ("1Ti", 2**40 * UNIT),
        ("1Pi", 2**50 * UNIT),
        ("7Ei", 7 * 2**60 * UNIT),
        ("1e3", 1000 * UNIT),
        ("1E3", 1000 * UNIT),
        ("1e+3", 1000 * UNIT),
        ("15e-1", 15 * UNIT // 10),
        ("1E", 10**18 * UNIT),
        ("0Ei", 0),
        ("0e999999999999", 0),
        (" 1 ", UNIT),
        ("\t1Ki\n", 2**10 * UNIT),
    ],
)
def test_every_form_is_exact(text: str, nanos: int) -> None:
    assert parse_quantity(text) == nanos


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0.4n", 1),
        ("-0.4n", -1),
        ("1e-30", 1),
        ("1e-99999999999999999999", 1),
        ("0.0000000011", 2),
        ("0." + "1" * 10_000, 111_111_112),
        ("0." + "0" * 10_000 + "1", 1),
        ("0." + "0" * 10_000, 0),
        ("1.000000001" + "0" * 5000 + "1", UNIT + 2),
        ("1" + "0" * 5000 + "e-5000", UNIT),
    ],
)
def test_fractions_of_a_billionth_are_rounded_up(text: str, nanos: int) -> None:
    assert parse_quantity(text) == nanos


@pytest.mark.parametrize("text", ["9223372036854775808", "8Ei", "10E", "1e19", "1e999999999999", "9" * 10_000])
def test_amounts_beyond_int64_are_cut(text: str) -> None:
    assert to_amount("memory", text, round_up=True) == INT64_MAX
    assert to_amount("memory", "-" + text, round_up=True) in (INT64_MIN, -INT64_MAX)
    assert to_amount("cpu", text, round_up=True) == INT64_MAX


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ".", "+", "-", "e3", "1e", "1e+", "1i", "1Kib", "1ki", "1K", "1 Gi", "\xa01", "--1", "1.2.3",
        "0x10", "1_000", "five", "1KiB", "1mi", "1E3Ki", "NaN", "inf", "１", "1,5", "m",
    ],
)  # fmt: skip
def test_other_texts_are_rejected_and_quoted(text: str) -> None:
    with pytest.raises(BadQuantity) as caught:
        parse_quantity(text)
    assert caught.value.text == text
    assert quoted(text) in str(caught.value)


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(BadQuantity) as caught:
        parse_quantity("x" * 1_000_000)
    assert len(str(caught.value)) < 250
    assert "…" in str(caught.value)


@pytest.mark.parametrize(
    ("resource", "text", "up", "down"),
    [
        ("cpu", "1", 1000, 1000),
        ("cpu", "100m", 100, 100),
        ("cpu", "0.1", 100, 100),
        ("cpu", "1u", 1, 0),
        ("cpu", "1500500u", 1501, 1500),
        ("memory", "100m", 1, 0),
        ("memory", "1.5Ki", 1536, 1536),
        ("memory", "1.0001Ki", 1025, 1024),
        ("ephemeral-storage", "1G", 10**9, 10**9),
        ("nvidia.com/gpu", "2", 2, 2),
        ("cpu.example.com/x", "1", 1, 1),
        ("pods", "110", 110, 110),
        ("memory", "-1500m", -1, -2),
    ],
)
def test_requests_round_up_and_allocatable_rounds_down(resource: str, text: str, up: int, down: int) -> None:
    assert to_amount(resource, text, round_up=True) == up
    assert to_amount(resource, text, round_up=False) == down


SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60), "e-12": Fraction(1, 10**12), "E+5": Fraction(10**5), "e0": Fraction(1),
    "e18": Fraction(10**18),
}  # fmt: skip


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.text("0123456789", min_size=1, max_size=25),
    fraction=st.none() | st.text("0123456789", max_size=25),
    suffix=st.sampled_from(sorted(SUFFIXES)),
)
def test_agrees_with_fractions(sign: str, whole: str, fraction: str | None, suffix: str) -> None:
    number = Fraction(int(whole + (fraction or "")), 10 ** len(fraction or ""))
    exact = min(number * SUFFIXES[suffix] * UNIT, Fraction(INT64_MAX * UNIT))
    expected = -(-exact.numerator // exact.denominator) * (-1 if sign == "-" else 1)
    text = sign + whole + ("" if fraction is None else "." + fraction) + suffix
    assert parse_quantity(text) == expected


@given(st.text(max_size=30) | st.text("0123456789.+-eEinumkKMGTP", max_size=12))
def test_every_text_is_a_quantity_or_rejected(text: str) -> None:
    try:
        amount = to_amount("memory", text, round_up=True)
    except BadQuantity:
        return
    assert INT64_MIN <= amount <= INT64_MAX
