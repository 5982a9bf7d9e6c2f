"""All functions by name."""

from typing import Final

from muster.cel.functions.conversions import CONVERSIONS
from muster.cel.functions.kubernetes import KUBERNETES
from muster.cel.functions.lists import LISTS
from muster.cel.functions.networks import NETWORKS
from muster.cel.functions.optionals import OPTIONALS
from muster.cel.functions.overloads import Function
from muster.cel.functions.strings import STRINGS

_LIBRARIES: Final = (CONVERSIONS, STRINGS, LISTS, OPTIONALS, KUBERNETES, NETWORKS)


def _merged(tables: list[dict[str, Function]]) -> dict[str, Function]:
    merged: dict[str, Function] = {}
    for table in tables:
        for name, function in table.items():
            if name in merged:
                merged[name].extend(function)
            else:
                merged[name] = function
    return merged


FUNCTIONS: Final = _merged([each.functions for each in _LIBRARIES])
"""Called as name(args); names with a dot are functions in a namespace."""
METHODS: Final = _merged([each.methods for each in _LIBRARIES])
"""Called as target.name(args)."""
NAMESPACES: Final = frozenset(name.split(".")[0] for name in FUNCTIONS if "." in name) | {"cel"}
_DATES: Final = {f"get{part}" for part in ("FullYear", "Month", "DayOfYear", "DayOfMonth", "Date", "DayOfWeek")}
_TIMES: Final = {f"get{part}" for part in ("Hours", "Minutes", "Seconds", "Milliseconds")}
UNSUPPORTED: Final = frozenset({"timestamp", "duration", "url", "isURL", "format", "named"} | _DATES | _TIMES)
"""Functions of Kubernetes' environment that are not implemented here; a message names them."""
