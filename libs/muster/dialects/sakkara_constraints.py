"""What Sakkara's groups ask of the levels of a tree, by a ConfigMap's JSON or by pod labels, as constraints on levels.

    {"rack": {"type": "spread", "partitions": 2, "hard": true}, "node": {"type": "pack", "min": 2, "max": 4}}
    sakkara.group.constraint.type.rack: spread, sakkara.group.constraint.partitions.rack: "2", ...

Of one level: "pack" is pack; "spread" is spread, and with partitions partition(n); min and max are a range, of which
the one that is missing bounds nothing; factor is factor(k). All are soft, or all hard. A level with only min, max or
factor is packed besides, softly, and so is every level that nothing is said of.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from muster.dialects.values import BadValue, count, shown
from muster.gangs.facts import OTHER_LEVELS, LevelConstraint, LevelPolicy
from muster.gangs.quoting import quoted
from muster.topology.constraints import is_level_name
from muster.topology.trees import MOST_LEVELS

LONGEST_TEXT: Final = 16384
"""Characters of the JSON: 16 levels with all that can be asked of them take 3,000."""

PACK_OTHERS: Final = LevelConstraint(OTHER_LEVELS, LevelPolicy.PACK)

_TYPE, _HARD, _PARTITIONS, _MIN, _MAX, _FACTOR = _KEYS = ("type", "hard", "partitions", "min", "max", "factor")
_PACK, _SPREAD = "pack", "spread"
_TRUTHS: Final = {"true": True, "false": False}
_EXAMPLE: Final = '{"rack": {"type": "pack"}, "node": {"type": "spread"}}'

Asked = Mapping[str, Mapping[str, Any]]
"""What is asked of each level, by its keys."""


class Reading(Struct, frozen=True):
    """Constraints, and what of the declaration means nothing, a sentence each."""

    constraints: tuple[LevelConstraint, ...] = ()
    ignored: tuple[str, ...] = ()


def read_constraints(declared: str | Asked, size: int) -> Reading:
    """What is declared, as JSON or taken from labels, for a group of so many pods. Raises BadValue."""
    asked = _decoded(declared) if isinstance(declared, str) else declared
    if len(asked) > MOST_LEVELS:
        raise BadValue(f"about {len(asked)} levels, but a tree has at most {MOST_LEVELS}")
    constraints: list[LevelConstraint] = []
    ignored: list[str] = []
    for level, wishes in asked.items():
        if not is_level_name(level):
            raise BadValue(f"about a level {shown(level)}, which no tree can have")
        if not isinstance(wishes, Mapping):
            raise BadValue(
                f'{shown(wishes)} for level {quoted(level)}, but it must be an object such as {{"type": "pack"}}'
            )
        constraints += _of_level(level, {key: wish for key, wish in wishes.items() if wish is not None}, size)
        ignored += [f"{shown(key)} of level {quoted(level)}" for key in wishes if key not in _KEYS]
    return Reading(tuple(constraints), tuple(ignored))


def _of_level(level: str, wishes: Mapping[str, Any], size: int) -> Iterator[LevelConstraint]:
    hard = _HARD in wishes and _truth(level, wishes[_HARD])
    numbers = {key: _number(level, key, wishes[key]) for key in (_PARTITIONS, _MIN, _MAX, _FACTOR) if key in wishes}
    partitions = numbers.get(_PARTITIONS, 0)
    kind = _kind(level, wishes[_TYPE]) if _TYPE in wishes else _SPREAD if partitions else ""
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
    raise BadValue(f"{_about(_TYPE, level)} {shown(value)}, which is neither pack nor spread")


def _truth(level: str, value: object) -> bool:
    truth = _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else value
    if isinstance(truth, bool):
        return truth
    raise BadValue(f"{_about(_HARD, level)} {shown(value)}, which is neither true nor false")


def _number(level: str, key: str, value: object) -> int:
    if key == _MIN and (value == "0" or (value == 0 and isinstance(value, int) and not isinstance(value, bool))):
        return 1  # a domain without a member is none of the group's
    try:
        return count(value)
    except BadValue as error:
        raise BadValue(f"{_about(key, level)} {error}") from error


def _about(key: str, level: str) -> str:
    """How a sentence goes on that begins with where the constraints are declared, and "is"."""
    return f"wrong: {key} of level {quoted(level)} is"


def _decoded(text: str) -> Asked:
    if len(text) > LONGEST_TEXT:
        raise BadValue(f"{quoted(text)}, which has {len(text)} characters; {LONGEST_TEXT} are allowed")
    try:
        asked = json.loads(text, object_pairs_hook=_once)
    except BadValue:
        raise
    except json.JSONDecodeError as error:
        around = quoted(text[max(0, error.pos - 20) : error.pos + 20].strip())
        where = f"line {error.lineno}, column {error.colno}, near {around}"
        raise BadValue(f"not JSON, {error.msg} at {where}; write for example {_EXAMPLE}") from error
    except (ValueError, RecursionError) as error:  # a number beyond all bounds, or objects in one another without end
        raise BadValue(f"{quoted(text)}, which cannot be read ({error})") from error
    if not isinstance(asked, dict):
        raise BadValue(f"{quoted(text)}, which is not a JSON object such as {_EXAMPLE}")
    return asked


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadValue(f"JSON with {shown(key)} twice in one object, of which only one can count")
        found[key] = value
    return found
