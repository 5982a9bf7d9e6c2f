"""Parses topology constraints, formats them, and finds contradictions in them.

    topology    = entry, { ";" or line break, entry }
    entry       = level, ":", policy, { ",", policy }
    policy      = [ "hard" | "soft" ], ( "pack" | "spread" | "partition(n)" | "range(min,max)" | "factor(k)" )

"soft" is the default. Names of levels are case-sensitive, keywords are not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Final

from msgspec.structs import replace

from muster.gangs.facts import OTHER_LEVELS, LevelConstraint, LevelPolicy
from muster.gangs.quoting import quoted
from muster.topology.divisible import satisfiable

MAX_NUMBER: Final = 2**31 - 1
MAX_TEXT_LENGTH: Final = 4096
"""Characters of an annotation; trees have a few levels, and there are five policies."""
MAX_LEVEL_NAME_LENGTH: Final = 63
"""Characters of a level's name, as of a label value."""
MAX_PROBLEMS: Final = 3
"""Problems that are reported at a time; the others are reported once these are solved."""

_LEVEL: Final = re.compile(r"[^\s:;,()](?:[^:;,()\n\r]{0,61}[^\s:;,()])?")
_POLICY: Final = re.compile(r"(?:(hard|soft)\s+)?([a-z]+)\s*(?:\(([^()]*)\))?", re.ASCII | re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_ENTRIES: Final = re.compile(r"[;\n\r]")
_COMMAS: Final = re.compile(r",(?![^(]*\))")  # not those in parentheses
_NUMBERS_OF: Final[Mapping[LevelPolicy, tuple[str, ...]]] = {
    LevelPolicy.PACK: (),
    LevelPolicy.SPREAD: (),
    LevelPolicy.PARTITION: ("n",),
    LevelPolicy.RANGE: ("min", "max"),
    LevelPolicy.FACTOR: ("k",),
}
_FORMS: Final = "pack, spread, partition(n), range(min,max) or factor(k)"


class BadConstraints(ValueError):
    """The text is not a list of constraints. The message quotes the wrong part and says what is expected."""


def parse_constraints(text: str) -> tuple[LevelConstraint, ...]:
    """Constraints in the order of the text. Raises BadConstraints.

    They may still contradict each other: see `clashes` and `contradictions`.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise BadConstraints(f"{quoted(text)}, which has {len(text)} characters; {MAX_TEXT_LENGTH} are allowed")
    found = tuple(each for entry in _ENTRIES.split(text) if entry.strip() for each in _entry(entry.strip()))
    if not found:
        raise BadConstraints(f'{quoted(text)}, which has no constraint: write e.g. "rack: hard pack; node: spread"')
    return found


def is_level_name(name: str) -> bool:
    """The name is valid for a level: constraints can be written on it."""
    return bool(_LEVEL.fullmatch(name)) and name.isprintable()


def as_text(constraint: LevelConstraint) -> str:
    """A constraint in the syntax of users, e.g. "rack: hard pack" or "node: range(2,4)"."""
    return f"{constraint.level}: {'hard ' if constraint.hard else ''}{_form(constraint)}"


def on_levels(constraints: tuple[LevelConstraint, ...], levels: Sequence[str]) -> tuple[LevelConstraint, ...]:
    """The constraints for a tree with these levels: "*" is expanded to all levels without another constraint, and
    optional constraints on other levels are dropped.
    """
    if any(each.optional and each.level not in levels for each in constraints):
        constraints = tuple(each for each in constraints if not each.optional or each.level in levels)
    if all(each.level != OTHER_LEVELS for each in constraints):
        return constraints
    named = {each.level for each in constraints}
    others = [level for level in levels if level not in named]
    return tuple(
        expanded
        for each in constraints
        for expanded in ([replace(each, level=level) for level in others] if each.level == OTHER_LEVELS else [each])
    )


def clashes(constraints: Iterable[LevelConstraint]) -> list[str]:
    """Contradictions that hold for every tree and gang size, a sentence each."""
    by_level: dict[str, list[LevelConstraint]] = {}
    for each in constraints:
        by_level.setdefault(each.level, []).append(each)
    found = (problem for given in by_level.values() for problem in (*_bad_numbers(given), *_clashes_of_level(given)))
    return list(islice(found, MAX_PROBLEMS))


def contradictions(
    constraints: Sequence[LevelConstraint], levels: Sequence[str], minimum: int, wanted: int, *, tree: str = ""
) -> list[str]:
    """Contradictions in the constraints of a gang, a sentence each; without any the gang can be tried.

    `levels`: names of the tree's levels from the top to the nodes. `minimum` to `wanted` members are to be placed,
    those that are placed already included. `tree`: name of the tree for the messages.
    """
    which = f"topology tree {quoted(tree)}" if tree else "the tree"
    problems = [
        f'constraint "{as_text(each)}" is on a level that {which} does not have: its levels are {", ".join(levels)}'
        for each in constraints
        if each.level not in levels
    ]
    problems += clashes(constraints)
    if problems or wanted < 1:
        return problems[:MAX_PROBLEMS]
    return list(islice(_unsatisfiable(constraints, levels, max(1, minimum), wanted), MAX_PROBLEMS))


# -- reading


def _entry(entry: str) -> Iterator[LevelConstraint]:
    level, colon, policies = entry.partition(":")
    level = level.strip()
    if not colon or not is_level_name(level):
        raise BadConstraints(f'{quoted(entry)}, which is not a level, a colon and policies, e.g. "rack: hard pack"')
    for text in _COMMAS.split(policies):
        yield _policy(level, text.strip())


def _policy(level: str, text: str) -> LevelConstraint:
    match = _POLICY.fullmatch(text)
    policy = LevelPolicy.__members__.get(match[2].upper()) if match else None
    if match is None or policy is None:
        raise BadConstraints(f"{quoted(text)} on level {quoted(level)}, but a policy is {_FORMS}, after hard or soft")
    names = _NUMBERS_OF[policy]
    numbers = [_number(level, text, part.strip()) for part in match[3].split(",")] if match[3] else []
    if len(numbers) != len(names) or (match[3] is not None and not names):
        form = f"{policy.name.lower()}({','.join(names)})" if names else policy.name.lower()
        raise BadConstraints(f"{quoted(text)} on level {quoted(level)}, but it is written {form}")
    hard = (match[1] or "").lower() == "hard"
    if policy is LevelPolicy.RANGE:
        return LevelConstraint(level, policy, hard, minimum=numbers[0], maximum=numbers[1])
    return LevelConstraint(level, policy, hard, numbers[0] if numbers else 0)


def _number(level: str, text: str, part: str) -> int:
    if not _NUMBER.fullmatch(part) or int(part) > MAX_NUMBER:
        where = f"{quoted(text)} on level {quoted(level)}"
        raise BadConstraints(f"{where} with {quoted(part)}, which is not a whole number from 0 to {MAX_NUMBER}")
    return int(part)


def _form(constraint: LevelConstraint) -> str:
    match constraint.policy:
        case LevelPolicy.RANGE:
            return f"range({constraint.minimum},{constraint.maximum})"
        case LevelPolicy.PARTITION | LevelPolicy.FACTOR:
            return f"{constraint.policy.name.lower()}({constraint.count})"
        case _:
            return constraint.policy.name.lower()


# -- contradictions for every gang size


def _bad_numbers(given: Iterable[LevelConstraint]) -> Iterator[str]:
    for each in given:
        match each.policy:
            case LevelPolicy.PARTITION | LevelPolicy.FACTOR if each.count < 1:
                yield f"{_words(each)} has the number {each.count}, but it must be at least 1"
            case LevelPolicy.RANGE if each.minimum < 1:
                yield f"{_words(each)} begins at {each.minimum}, but it must begin at 1 or more"
            case LevelPolicy.RANGE if each.minimum > each.maximum:
                yield f"{_words(each)} begins above its end: write range({each.maximum},{each.minimum})"


def _words(constraint: LevelConstraint) -> str:
    return f'constraint "{as_text(constraint)}"'


def _clashes_of_level(given: Sequence[LevelConstraint]) -> Iterator[str]:
    if len(given) < 2:
        return
    for _, same in groupby(sorted(given, key=_policy_of), _policy_of):
        first, *more = same
        if more:
            yield f'constraints "{as_text(first)}" and "{as_text(more[0])}" are of one kind: only one may be given'
    by_policy = {each.policy: each for each in given}
    pack, spread = by_policy.get(LevelPolicy.PACK), by_policy.get(LevelPolicy.SPREAD)
    partition = by_policy.get(LevelPolicy.PARTITION)
    if pack and spread:
        yield _both(pack, spread, "one asks for few domains, the other for many")
    if pack and partition and partition.count > 1:
        yield _both(pack, partition, f"one asks for few domains, the other for {partition.count}")
    if spread and partition:
        yield _both(spread, partition, f"one asks for many domains, the other for {partition.count}")
    of_range, factor = by_policy.get(LevelPolicy.RANGE), by_policy.get(LevelPolicy.FACTOR)
    if of_range and factor and not _has_multiple(of_range, factor.count):
        reason = f"no multiple of {factor.count} is from {of_range.minimum} to {of_range.maximum}"
        yield _both(of_range, factor, reason)


def _has_multiple(of_range: LevelConstraint, factor: int) -> bool:
    """Also true if the numbers are invalid by themselves, which is reported separately."""
    if factor < 1 or not 0 < of_range.minimum <= of_range.maximum:
        return True
    return of_range.maximum // factor * factor >= of_range.minimum


def _policy_of(constraint: LevelConstraint) -> LevelPolicy:
    return constraint.policy


def _both(one: LevelConstraint, other: LevelConstraint, why: str) -> str:
    return f'constraints "{as_text(one)}" and "{as_text(other)}" contradict each other: {why}'


# -- contradictions for a number of members


def _unsatisfiable(
    constraints: Sequence[LevelConstraint], levels: Sequence[str], minimum: int, wanted: int
) -> Iterator[str]:
    hard = [each for each in constraints if each.hard]
    members = f"{wanted} members" if minimum >= wanted else f"any number of members from {minimum} to {wanted}"
    alone = [each for each in hard if not satisfiable((each,), levels, minimum, wanted)]
    for each in alone:
        if each.policy is LevelPolicy.PARTITION:
            yield f'constraint "{as_text(each)}" asks for {each.count} domains, but there are only {wanted} members'
        else:
            yield f'constraint "{as_text(each)}" cannot be met by {members}'
    if alone or satisfiable(tuple(constraints), levels, minimum, wanted):
        return
    together = " and ".join(f'"{as_text(each)}"' for each in hard)
    yield f"constraints {together} cannot all be met by {members}"
