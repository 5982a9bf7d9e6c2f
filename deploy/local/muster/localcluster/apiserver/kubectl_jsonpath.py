"""kubectl's JSONPath, as in additionalPrinterColumns, translated to RFC 9535.

kubectl's dialect has another root, "." or "{.}" instead of "$", and names of any characters without brackets, with dots
escaped by a backslash.
"""

import json
import re
from functools import lru_cache
from typing import Any, Final

import jsonpath
from jsonpath import JSONPath, JSONPathError
from jsonpath.path import CompoundJSONPath

_SEGMENT: Final = re.compile(r"(?P<brackets>\[[^\]]*\])|\.?(?P<name>(?:[^.\[\\]|\\.)+)")


def find_all(path: str, document: Any) -> list[Any]:
    """All values at the path; empty if there are none or the path is invalid."""
    compiled = _compiled(path)
    return [] if compiled is None else list(compiled.findall(document))


@lru_cache(maxsize=512)
def _compiled(path: str) -> JSONPath | CompoundJSONPath | None:
    segments = _SEGMENT.finditer(path.strip().removeprefix("{").removesuffix("}").removeprefix("$"))
    try:
        return jsonpath.compile("$" + "".join(map(_bracketed, segments)))
    except JSONPathError:
        return None


def _bracketed(segment: re.Match[str]) -> str:
    if segment["brackets"]:
        return segment["brackets"]
    name = segment["name"].replace("\\.", ".")
    return f"[{json.dumps(name)}]"
