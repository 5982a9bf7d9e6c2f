"""Parses values that users write in marks and definitions: counts, durations, gang names and lists of them."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from muster.gangs.json_text import BadJson, decode_json
from muster.gangs.quoting import quoted

GangName = tuple[str, str]
"""Namespace and name."""

MAX_COUNT: Final = 2**31 - 1
MAX_DURATION_LENGTH: Final = 64  # characters; a meaningful duration is shorter
MAX_GANGS_IN_A_GROUP: Final = 100
MAX_INDEX_DIGITS: Final = 9

_COUNT: Final = re.compile(r"[+-]?[0-9]{1,4000}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)

_MOST_UNKNOWN: Final = 3
"""Unknown fields that are named."""
_LONGEST_SHOWN_BITS: Final = 10_000  # Python limits the length of numbers that it converts

_NUMBER: Final = r"([0-9]+\.?[0-9]*|\.[0-9]+)"
_PLAIN_SECONDS: Final = re.compile(rf"[+-]?{_NUMBER}", re.ASCII)
_AMOUNT: Final = rf"{_NUMBER}(ns|us|µs|μs|ms|s|m|h)"
_DURATION: Final = re.compile(rf"([+-]?)((?:{_AMOUNT})+|0)", re.ASCII)
_DURATION_PART: Final = re.compile(_AMOUNT, re.ASCII)
_MAX_DURATION_SECONDS: Final = (2**63 - 1) // 10**9  # what Go's time.Duration holds: 292 years
_UNIT_SECONDS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}


class BadValue(ValueError):
    """An invalid value. The message quotes it and ends with what it must be."""


def parse_count(value: object) -> int:
    """Parses a number of pods, at least 1, from a mark's text or a definition's field. Raises BadValue."""
    if value is None:
        raise BadValue("missing")
    number: int | None = None
    if isinstance(value, str) and _COUNT.fullmatch(value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    if number is None:
        raise BadValue(f"{quoted_value(value)}, which is not a whole number")
    if number < 1:
        raise BadValue(f"{quoted_value(value)}, but it must be at least 1")
    if number > MAX_COUNT:
        raise BadValue(f"{quoted_value(value)}, but it must be at most {MAX_COUNT}")
    return number


def parse_index(text: str | None) -> int:
    """Returns the index of a pod, of up to 9 digits; -1 if there is none, or an invalid one."""
    if not text or len(text) > MAX_INDEX_DIGITS or not (text.isascii() and text.isdecimal()):
        return -1
    return int(text)


def parse_duration_seconds(text: str) -> float:
    """Parses a positive duration as Go writes it ("90s", "10m", "1h30m", "1.5h"). Raises BadValue."""
    return _above_zero(text, _duration(text))


def parse_duration_or_seconds(text: str) -> float:
    """Parses a duration as parse_duration_seconds, or a plain number of seconds ("90", "1.5"). Raises BadValue."""
    return _above_zero(text, _duration(text + "s" if _PLAIN_SECONDS.fullmatch(text) else text))


def _above_zero(text: str, duration: Fraction | None) -> float:
    if duration is None:
        raise BadValue(f"{quoted(text)}, which is not a duration such as 90s, 10m or 1h30m")
    if duration <= 0:
        raise BadValue(f"{quoted(text)}, but it must be above zero")
    if duration > _MAX_DURATION_SECONDS:
        raise BadValue(f"{quoted(text)}, but it must be below 292 years")
    return float(duration)


def parse_seconds(value: object) -> float:
    """Parses a positive whole number of seconds from a definition's field. Raises BadValue."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadValue(f"{quoted_value(value)}, which is not a whole number of seconds")
    if not 0 < value <= MAX_COUNT:
        raise BadValue(f"{quoted_value(value)}, but it must be 1 to {MAX_COUNT} seconds")
    return float(value)


def parse_gang_name(value: str) -> str:
    """Validates a gang's name: letters, digits, "-", "_" and ".", at most 253. Raises BadValue."""
    if not value:
        raise BadValue("empty, but it must name a gang")
    if not _NAME.fullmatch(value):
        raise BadValue(
            f"{quoted(value)}, but a gang's name has at most 253 letters, digits, dashes, underscores and dots, "
            "and begins and ends with a letter or digit"
        )
    return value


def parse_gang_group(text: str) -> tuple[GangName, ...]:
    """Parses a JSON list of "namespace/name" into sorted pairs without duplicates. Raises BadValue."""
    try:
        entries = decode_json(text)
    except BadJson:
        entries = None
    if not isinstance(entries, list):
        raise BadValue(f'{quoted(text)}, which is not a JSON list such as ["namespace/name","namespace/name"]')
    gangs = {_gang(entry) for entry in entries}
    if len(gangs) > MAX_GANGS_IN_A_GROUP:
        raise BadValue(f"a list of {len(gangs)} gangs, but a group has at most {MAX_GANGS_IN_A_GROUP}")
    return tuple(sorted(gangs))


def describe_unknown_fields(given: object, known: Iterable[str], where: str) -> str:
    """Names the fields of an object that are none of the known ones; empty: it has none. `where` is it in words."""
    if not isinstance(given, Mapping):
        return ""
    fields = sorted(known)
    unknown = sorted([str(each) for each in given if each not in fields])
    if not unknown:
        return ""
    more = f" and {len(unknown) - _MOST_UNKNOWN} more" if len(unknown) > _MOST_UNKNOWN else ""
    names = f"{', '.join(map(quoted, unknown[:_MOST_UNKNOWN]))}{more}"
    return f"{where} has {names}, without effect: the fields that are known are {', '.join(fields) or 'none'}"


def quoted_value(value: object) -> str:
    """Returns a value of a mark or of a field, in quotes."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return quoted(str(value)) if value.bit_length() < _LONGEST_SHOWN_BITS else "a number of thousands of digits"
    return quoted(msgspec.json.encode(value).decode())


def _gang(entry: Any) -> GangName:
    if isinstance(entry, str):
        namespace, slash, name = entry.partition("/")
        if slash and _NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name):
            return namespace, name
    raise BadValue(f'a list with {quoted_value(entry)} in it, which is not "namespace/name"')


def _duration(text: str) -> Fraction | None:
    match = _DURATION.fullmatch(text) if len(text) <= MAX_DURATION_LENGTH else None
    if match is None:
        return None
    parts = _DURATION_PART.findall(match[2])
    total = sum((Fraction(number) * _UNIT_SECONDS[unit] for number, unit in parts), Fraction())
    return -total if match[1] == "-" else total
