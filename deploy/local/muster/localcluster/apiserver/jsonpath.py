"""The part of JSONPath that printer columns use: fields, indexes, `[*]` and filters on equality."""

import re
from functools import lru_cache
from typing import Any, Final

_STEP: Final = re.compile(
    r"""\.?(?:
        \[\s*'(?P<quoted>[^']+)'\s*\] | \[\s*"(?P<double>[^"]+)"\s*\] | \[\s*(?P<index>-?\d+|\*)\s*\]
        | \[\?\(\s*@\.(?P<field>[\w.\-/]+)\s*==\s*["'](?P<value>[^"']*)["']\s*\)\]
        | (?P<name>(?:[^.\[\\]|\\.)+)
    )""",
    re.VERBOSE,
)

_Step = tuple[str, str, str]


def find_all(path: str, document: Any) -> list[Any]:
    """All values that the path finds; an empty list where there is nothing."""
    found = [document]
    for step in _steps(path):
        found = [value for item in found for value in _follow(step, item)]
    return found


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    for match in _STEP.finditer(path.strip().removeprefix("{").removesuffix("}").removeprefix("$")):
        if name := match["quoted"] or match["double"] or match["name"]:
            steps.append(("field", name.replace("\\.", "."), ""))
        elif match["index"]:
            steps.append(("index", match["index"], ""))
        else:
            steps.append(("filter", match["field"], match["value"]))
    return tuple(steps)


def _follow(step: _Step, item: Any) -> list[Any]:
    how, key, value = step
    if how == "field":
        return [item[key]] if isinstance(item, dict) and key in item else []
    if not isinstance(item, list):
        return []
    if how == "filter":
        return [each for each in item if isinstance(each, dict) and str(each.get(key)) == value]
    if key == "*":
        return item
    return item[int(key) :][:1]
