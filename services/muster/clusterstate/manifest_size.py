"""Sizes of manifests, which may be larger than their text: YAML repeats what an alias names as often as it is used."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

MAX_VALUES: Final = 1_000_000
MAX_SIZE: Final = 64 * MAX_VALUES
"""Size of one document."""
MAX_TOTAL_SIZE: Final = 2 * MAX_SIZE
"""Size of all objects that manifests would create."""
MAX_KEYS: Final = 100_000
"""Keys that one mapping may get by merges ("<<")."""
_VALUE_SIZE: Final = MAX_SIZE // MAX_VALUES


def size_of(value: Any, limit: int = MAX_SIZE) -> int:
    """Memory of a value in bytes, roughly: 64 for each value in it, and its characters. Stops above the limit."""
    waiting, size = [value], 0
    while waiting and size <= limit:
        each = waiting.pop()
        size += _VALUE_SIZE
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, Mapping):
            size += sum(len(key) for key in each if isinstance(key, str))
            waiting += each.values()
        elif isinstance(each, list | tuple | set):
            waiting += each
    return size


class BoundedLoader(yaml.SafeLoader):
    """YAML's safe types. Merges that would double the keys of a mapping again and again are errors."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_KEYS:
            problem = f"merges give a mapping more than {MAX_KEYS} keys"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
