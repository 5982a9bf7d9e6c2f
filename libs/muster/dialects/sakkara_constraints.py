"""Parses Sakkara's topology constraints, from the JSON of a ConfigMap or from pod labels, into level constraints.

    {"rack": {"type": "spread", "partitions": 2, "hard": true}, "node": {"type": "pack", "min": 2, "max": 4}}
    sakkara.group.constraint.type.rack: spread, sakkara.group.constraint.partitions.rack: "2", ...

For one level: "pack" is pack; "spread" is spread, with partitions partition(n); min and max are a range, unbounded on
the side that is missing; factor is factor(k). All are soft unless `hard` is true. A level with only min, max or factor
is also packed softly, and so is every level without a constraint.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from muster.dialects.values import BadValue, parse_count, quoted_value
from muster.gangs.facts import OTHER_LEVELS, LevelConstraint, LevelPolicy
from muster.gangs.json_text import decode_json, decode_json_pairs
from muster.gangs.quoting import quoted
from muster.topology.constraints import is_level_name
from muster.topology.trees import MAX_LEVELS

MAX_TEXT_LENGTH: Final = 16384
"""Characters of the JSON. All constraints on 16 levels take 3,000."""

PACK_OTHERS: Final = LevelConstraint(OTHER_LEVELS, LevelPolicy.PACK)

_TYPE, _HARD, _PARTITIONS, _MIN, _MAX, _FACTOR = _KEYS = ("type", "hard", "partitions", "min", "max", "factor")
_PACK, _SPREAD = "pack", "spread"
_TRUTHS: Final = {"true": True, "false": False}
_EXAMPLE: Final = '{"rack": {"type": "pack"}, "node": {"type": "spread"}}'

Requested = Mapping[str, Mapping[str, Any]]
"""The keys and values given for each level."""


class Constraints(Struct, frozen=True):
    """Parsed constraints, and the unknown keys of the declaration, in words."""

    constraints: tuple[LevelConstraint, ...] = ()
    ignored: tuple[str, ...] = ()


def parse_constraints(declared: str | Requested, size: int) -> Constraints:
    """Parses constraints, given as JSON or taken from labels, of a group of `size` pods. Raises BadValue."""
    requested = _decoded(declared) if isinstance(declared, str) else declared
    if len(requested) > MAX_LEVELS:
        raise BadValue(f"about {len(requested)} levels, but a tree has at most {MAX_LEVELS}")
    constraints: list[LevelConstraint] = []
    ignored: list[str] = []
    for level, given in requested.items():
        if not is_level_name(level):
            raise BadValue(f"about a level {quoted_value(level)}, which no tree can have")
        if not isinstance(given, Mapping):
            raise BadValue(
                f'{quoted_value(given)} for level {quoted(level)}, but it must be an object such as {{"type": "pack"}}'
            )
        constraints += _of_level(level, {key: value for key, value in given.items() if value is not None}, size)
        ignored += [f"{quoted_value(key)} of level {quoted(level)}" for key in given if key not in _KEYS]
    return Constraints(tuple(constraints), tuple(ignored))


def _of_level(level: str, given: Mapping[str, Any], size: int) -> Iterator[LevelConstraint]:
    hard = _HARD in given and _truth(level, given[_HARD])
    numbers = {key: _number(level, key, given[key]) for key in (_PARTITIONS, _MIN, _MAX, _FACTOR) if key in given}
    partitions = numbers.get(_PARTITIONS, 0)
    kind = _kind(level, given[_TYPE]) if _TYPE in given else _SPREAD if partitions else ""
    if kind == _PACK:
        yield LevelConstraint(level, LevelPolicy.PACK, hard)
    elif kind == _SPREAD and not partitions:
        yield LevelConstraint(level, LevelPolicy.SPREAD, hard)
    elif not kind:
        yield LevelConstraint(level, LevelPolicy.PACK, hard and not numbers)
    if partitions > 1 or (partitions and kind == _SPREAD):
        yield LevelConstraint(level, LevelPolicy.PARTITION, hard, partitions)
    if _MIN in numbers or _MAX in numbers:
        least = numbers.get(_MIN, 1)
        yield LevelConstraint(
            level, LevelPolicy.RANGE, hard, minimum=least, maximum=numbers.get(_MAX, max(least, size))
        )
    if _FACTOR in numbers:
        yield LevelConstraint(level, LevelPolicy.FACTOR, hard, numbers[_FACTOR])


def _kind(level: str, value: object) -> str:
    if isinstance(value, str) and (kind := value.strip().lower()) in (_PACK, _SPREAD):
        return kind
    raise BadValue(f"{_about(_TYPE, level)} {quoted_value(value)}, which is neither pack nor spread")


def _truth(level: str, value: object) -> bool:
    truth = _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(truth, bool):
        return truth
    raise BadValue(f"{_about(_HARD, level)} {quoted_value(value)}, which is neither true nor false")


def _number(level: str, key: str, value: object) -> int:
    if key == _MIN and (value == "0" or (value == 0 and isinstance(value, int) and not isinstance(value, bool))):
        return 1  # the range applies only to domains with members
    try:
        return parse_count(value)
    except BadValue as error:
        raise BadValue(f"{_about(key, level)} {error}") from error


def _about(key: str, level: str) -> str:
    """Returns the rest of a sentence that starts with where the constraints are declared, and "is"."""
    return f"wrong: {key} of level {quoted(level)} is"


def _decoded(text: str) -> Requested:
    if len(text) > MAX_TEXT_LENGTH:
        raise BadValue(f"{quoted(text)}, which has {len(text)} characters; {MAX_TEXT_LENGTH} are allowed")
    try:
        if "\\ud" in text.lower():
            decode_json(text)  # rejects lone surrogates, which no message could hold
        requested = decode_json_pairs(text, _once)
    except BadValue:
        raise
    except json.JSONDecodeError as error:
        around = quoted(text[max(0, error.pos - 20) : error.pos + 20].strip())
        where = f"line {error.lineno}, column {error.colno}, near {around}"
        raise BadValue(f"not JSON, {error.msg} at {where}; write for example {_EXAMPLE}") from error
    except ValueError as error:  # a number out of range, or objects nested too deeply
        raise BadValue(f"{quoted(text)}, which cannot be read ({error})") from error
    if not isinstance(requested, dict):
        raise BadValue(f"{quoted(text)}, which is not a JSON object such as {_EXAMPLE}")
    return requested


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadValue(f"JSON with {quoted_value(key)} twice in one object")
        found[key] = value
    return found
