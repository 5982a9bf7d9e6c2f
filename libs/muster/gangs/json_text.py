"""JSON in the marks of users: annotations and the data of ConfigMaps."""

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

MAX_NESTING: Final = 100
"""Levels of objects and lists. Decoding, comparing and printing recurse, so that deeper values could not be handled."""


class BadJson(ValueError):
    """The text cannot be read. The message says why."""


def decode_json(text: str) -> Any:
    """The value of a JSON text. Raises BadJson."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadJson(f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise BadJson(_TOO_DEEP) from error
    if not is_shallow(value):
        raise BadJson(_TOO_DEEP)
    return value


def decode_json_pairs(text: str, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    """The value of a JSON text, with `object_pairs_hook` as of json.loads. Strings may have lone surrogates.

    Raises BadJson, and json.JSONDecodeError, which has the position, if the text is not JSON.
    """
    try:
        value = json.loads(text, object_pairs_hook=object_pairs_hook)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise BadJson(_TOO_DEEP) from error
    if not is_shallow(value):
        raise BadJson(_TOO_DEEP)
    return value


def is_shallow(value: Any) -> bool:
    """Whether a decoded value has at most MAX_NESTING levels."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [
            below
            for each in level
            if isinstance(each, dict | list | tuple)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


_TOO_DEEP: Final = f"it is nested deeper than {MAX_NESTING} levels"
