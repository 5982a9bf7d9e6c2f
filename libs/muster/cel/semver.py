"""Semantic versions (semver.org) as values of CEL."""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Final

from muster.gangs.quoting import quoted

_FORM: Final = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII)
_DIGITS: Final = 20
_LARGEST: Final = 2**64 - 1


class BadVersion(ValueError):
    """`text` is not a semantic version."""

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        super().__init__(f"{quoted(text)} is not a semantic version: {reason}")


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """A version; build metadata is not part of comparisons."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str | int, ...] = ()

    @classmethod
    def parsed(cls, text: str) -> "Semver":
        """The version that a text such as "1.2.3-rc.1" states. Raises BadVersion."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise BadVersion(text, "write MAJOR.MINOR.PATCH, such as 1.2.3 or 1.2.3-rc.1")
        major, minor, patch, prerelease, build = match.groups()
        if build is not None and not all(build.split(".")):
            raise BadVersion(text, "an identifier is empty")
        identifiers = prerelease.split(".") if prerelease is not None else ()
        numbers = [_number(text, each) for each in (major, minor, patch)]
        return cls(numbers[0], numbers[1], numbers[2], tuple(_identifier(text, each) for each in identifiers))

    @classmethod
    def normalized(cls, text: str) -> "Semver":
        """As `parsed`, and "v1", "1.2" and leading zeros are allowed. Raises BadVersion."""
        parts = [_without_zeros(each) for each in text.removeprefix("v").split(".", 2)]
        if len(parts) < 3 and ("-" in parts[-1] or "+" in parts[-1]):
            raise BadVersion(text, "a prerelease or build needs MAJOR.MINOR.PATCH before it")
        return cls.parsed(".".join(parts + ["0"] * (3 - len(parts))))

    def _key(self) -> tuple[Any, ...]:
        # Without a prerelease comes last; numbers come before words.
        words = tuple((1, 0, each) if isinstance(each, str) else (0, each, "") for each in self.prerelease)
        return (self.major, self.minor, self.patch, not self.prerelease, words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: "Semver") -> bool:
        return self._key() < other._key()


def _number(text: str, digits: str) -> int:
    if len(digits) > 1 and digits[0] == "0":
        raise BadVersion(text, "a number has a leading zero")
    if len(digits) > _DIGITS or int(digits) > _LARGEST:
        raise BadVersion(text, "a number is larger than 64 bits")
    return int(digits)


def _identifier(text: str, identifier: str) -> str | int:
    if not identifier:
        raise BadVersion(text, "an identifier is empty")
    return _number(text, identifier) if identifier.isdigit() else identifier


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    rest = part.lstrip("0")
    return rest if rest and rest[0].isdigit() else f"0{rest}"
