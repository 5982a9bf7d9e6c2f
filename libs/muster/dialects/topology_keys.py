"""Parses topology keys: those of node labels."""

import re
from collections.abc import Mapping
from typing import Any, Final

from muster.dialects.values import BadValue, quoted_value

_LABEL_KEY: Final = re.compile(
    r"(?=.{1,317}\Z)(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)


def parse_label_key(value: Any) -> str:
    """Parses the key of a node label. Raises BadValue."""
    if not isinstance(value, str) or not _LABEL_KEY.fullmatch(value):
        raise BadValue(f"{quoted_value(value)}, but a key must be that of a label, such as topology.kubernetes.io/zone")
    return value


def parse_topology_key(listed: Any) -> str:
    """Parses a list of one key, that of a node label. Raises BadValue."""
    keys = (
        [each.get("key") if isinstance(each, Mapping) else None for each in listed]
        if isinstance(listed, list | tuple)
        else []
    )
    if len(keys) != 1:
        raise BadValue(f"{quoted_value(listed)}, which is not a list of one {{key: ...}}")
    key = keys[0]
    if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
        raise BadValue(
            f"{quoted_value(listed)}, but a key must be that of a label, such as topology.kubernetes.io/zone"
        )
    return key
