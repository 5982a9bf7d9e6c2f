"""Repairs JSON that decoders cannot take: cuts deep nesting, replaces invalid UTF-8 and lone surrogates.

Decoders recurse, so that nesting of about 1,000 levels ends in RecursionError, less in a deep call stack. The API
server passes on deeper nesting in fields without a schema, such as metadata.managedFields or the spec of a custom
resource.
"""

import re
from typing import Final

MAX_NESTING: Final = 100
"""Levels of objects and lists that are read."""
CUT: Final = f"(nested deeper than {MAX_NESTING} levels)"
"""The string in place of a value that is nested deeper."""

_CUT: Final = f'"{CUT}"'.encode()
_BLOCK_BYTES: Final = 1 << 20
_QUOTE: Final = ord('"')
_NO_STRUCTURE: Final = bytes(sorted(set(range(256)) - set(b'"[]{}')))
_STRING: Final = re.compile(b'"[^"]*"')
_SURROGATES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def repaired(data: bytes) -> bytes:
    """The JSON with readable nesting and text; the same object if there is nothing to repair."""
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode(errors="replace").encode()
    if b"\\ud" in data or b"\\uD" in data:
        data = _SURROGATES.sub(lambda found: rb"\ufffd" if found[1] else found[0], data)
    return shallow(data)


def shallow(data: bytes) -> bytes:
    """The JSON with values nested deeper than MAX_NESTING levels replaced by the string CUT."""
    if data.count(b"[") + data.count(b"{") <= MAX_NESTING:
        return data
    plain = data.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")  # so that each quote begins or ends a string
    if _surely_shallow(plain):
        return data
    parts, end = [], 0
    for first, last in _deep_regions(plain):
        parts += [data[end:first], _CUT]
        end = last + 1
    parts.append(data[end:])
    return b"".join(parts)


def _surely_shallow(plain: bytes) -> bool:
    """Whether the nesting is found to be at most MAX_NESTING: True for what API servers usually send.

    A round removes the innermost values, which are one or two levels. It gives up when a round removes few of them.
    """
    brackets = _STRING.sub(b"", plain.translate(None, delete=_NO_STRUCTURE).replace(b'""', b""))
    for _ in range(MAX_NESTING // 2):
        before = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(brackets) > before * 0.9:
            return False
        if not brackets:
            return True
    return False


def _deep_regions(plain: bytes) -> list[tuple[int, int]]:
    """First and last byte of each value that begins below MAX_NESTING levels; the last may be missing in the data."""
    import numpy as np  # here, because few processes meet such data and importing it costs them 0.1 s and 20 MiB

    steps = np.zeros(256, np.int8)  # int8[byte]: change of depth
    steps[[ord("["), ord("{")]] = 1
    steps[[ord("]"), ord("}")]] = -1
    within, depth, was_deep = 0, 0, False
    edges: list[int] = []
    for start in range(0, len(plain), _BLOCK_BYTES):
        block = np.frombuffer(plain, np.uint8, min(_BLOCK_BYTES, len(plain) - start), start)
        outside = (np.cumsum(block == _QUOTE, dtype=np.uint8) + np.uint8(within + 1)) & 1  # modulo 256
        depths = np.cumsum(steps[block] * outside.view(np.int8), dtype=np.int32) + depth
        deep = depths > MAX_NESTING
        changes = np.flatnonzero(deep[1:] != deep[:-1]) + 1
        if deep[0] != was_deep:
            edges.append(start)
        edges.extend((changes + start).tolist())
        within, depth, was_deep = 1 - int(outside[-1]), int(depths[-1]), bool(deep[-1])
    if was_deep:
        edges.append(len(plain) - 1)
    return list(zip(edges[::2], edges[1::2], strict=True))
