"""The strings extension of CEL, and regular expressions."""

from typing import Final

from muster.cel.budget import Budget
from muster.cel.errors import Fault
from muster.cel.functions.overloads import Library
from muster.cel.regex import Pattern
from muster.cel.values import STRING_UNIT, type_name

STRINGS: Final = Library()
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" + (
    "\u2028\u2029\u202f\u205f\u3000"
)


def _traverse(budget: Budget, *texts: str) -> None:
    budget.charge(1 + sum(map(len, texts)) // STRING_UNIT)


@STRINGS.method("startsWith", str, str)
def _starts_with(budget: Budget, text: str, prefix: str) -> bool:
    _traverse(budget, prefix)
    return text.startswith(prefix)


@STRINGS.method("endsWith", str, str)
def _ends_with(budget: Budget, text: str, suffix: str) -> bool:
    _traverse(budget, suffix)
    return text.endswith(suffix)


@STRINGS.method("contains", str, str)
def _contains(budget: Budget, text: str, part: str) -> bool:
    _traverse(budget, text, part)
    return part in text


@STRINGS.method("lowerAscii", str)
def _lower(budget: Budget, text: str) -> str:
    _traverse(budget, text)
    return text.lower() if text.isascii() else text.translate(_LOWER)


@STRINGS.method("upperAscii", str)
def _upper(budget: Budget, text: str) -> str:
    _traverse(budget, text)
    return text.upper() if text.isascii() else text.translate(_UPPER)


@STRINGS.method("trim", str)
def _trim(budget: Budget, text: str) -> str:
    _traverse(budget, text)
    return text.strip(_BLANKS)


@STRINGS.method("charAt", str, int)
def _char_at(budget: Budget, text: str, index: int) -> str:
    budget.charge(1)
    if not 0 <= index <= len(text):
        raise Fault(f"charAt: index {index} is out of range for {len(text)} characters")
    return text[index : index + 1]


@STRINGS.method("indexOf", str, str)
def _index_of(budget: Budget, text: str, part: str) -> int:
    _traverse(budget, text, part)
    return text.find(part)


@STRINGS.method("indexOf", str, str, int)
def _index_of_from(budget: Budget, text: str, part: str, start: int) -> int:
    _traverse(budget, text, part)
    _not_negative(start)
    return text.find(part, min(start, len(text)) if part == "" else start)


@STRINGS.method("lastIndexOf", str, str)
def _last_index_of(budget: Budget, text: str, part: str) -> int:
    _traverse(budget, text, part)
    return text.rfind(part)


@STRINGS.method("lastIndexOf", str, str, int)
def _last_index_of_from(budget: Budget, text: str, part: str, start: int) -> int:
    _traverse(budget, text, part)
    _not_negative(start)
    if part == "":
        return min(start, len(text))
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


@STRINGS.method("substring", str, int)
def _substring_from(budget: Budget, text: str, start: int) -> str:
    return _substring(budget, text, start, len(text))


@STRINGS.method("substring", str, int, int)
def _substring(budget: Budget, text: str, start: int, end: int) -> str:
    _traverse(budget, text)
    if not 0 <= start <= end <= len(text):
        raise Fault(f"substring: {start} to {end} is out of range for {len(text)} characters")
    return text[start:end]


@STRINGS.method("replace", str, str, str)
def _replace(budget: Budget, text: str, old: str, new: str) -> str:
    return _replace_some(budget, text, old, new, -1)


@STRINGS.method("replace", str, str, str, int)
def _replace_some(budget: Budget, text: str, old: str, new: str, limit: int) -> str:
    _traverse(budget, text)
    count = len(text) + 1 if old == "" else text.count(old)
    if limit >= 0:
        count = min(count, limit)
    budget.charge((count * len(new) + len(text)) // STRING_UNIT)
    return text.replace(old, new, count)


@STRINGS.method("split", str, str)
def _split(budget: Budget, text: str, separator: str) -> list[str]:
    return _split_some(budget, text, separator, -1)


@STRINGS.method("split", str, str, int)
def _split_some(budget: Budget, text: str, separator: str, limit: int) -> list[str]:
    _traverse(budget, text, text)
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if separator:
        budget.charge(text.count(separator))
        return text.split(separator, limit - 1 if limit > 0 else -1)
    budget.charge(len(text))
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


@STRINGS.method("join", list)
def _join(budget: Budget, texts: list[str]) -> str:
    return _join_by(budget, texts, "")


@STRINGS.method("join", list, str)
def _join_by(budget: Budget, texts: list[str], separator: str) -> str:
    budget.charge(len(texts))
    for each in texts:
        if type(each) is not str:
            raise Fault(f"join: an item is of type {type_name(each)}, not string")
    budget.charge((sum(map(len, texts)) + len(separator) * len(texts)) // STRING_UNIT)
    return separator.join(texts)


_QUOTES: Final = {ord(raw): f"\\{name}" for raw, name in zip('\a\b\f\n\r\t\v\\"', 'abfnrtv\\"', strict=True)}


@STRINGS.function("strings.quote", str)
def _quote(budget: Budget, text: str) -> str:
    _traverse(budget, text, text)
    return f'"{text.translate(_QUOTES)}"'


@STRINGS.function("matches", str, str)
@STRINGS.method("matches", str, str)
def _matches(budget: Budget, text: str, pattern: str) -> bool:
    return Pattern.compiled(budget, pattern).matches(budget, text)


@STRINGS.method("find", str, str)
def _find(budget: Budget, text: str, pattern: str) -> str:
    return Pattern.compiled(budget, pattern).find(budget, text)


@STRINGS.method("findAll", str, str)
def _find_all(budget: Budget, text: str, pattern: str) -> list[str]:
    return Pattern.compiled(budget, pattern).find_all(budget, text, -1)


@STRINGS.method("findAll", str, str, int)
def _find_some(budget: Budget, text: str, pattern: str, limit: int) -> list[str]:
    return Pattern.compiled(budget, pattern).find_all(budget, text, limit)


def _not_negative(index: int) -> None:
    if index < 0:
        raise Fault(f"index out of range: {index}")
