"""Canonical form of quantities, as kube-apiserver returns them: no fractions, the largest suffix that fits."""

import re
from functools import lru_cache
from typing import Final

from muster.gangs.quantity import NANOS_PER_UNIT, BadQuantity, parse_quantity
from muster.localcluster.apiserver.store import Object

_BINARY: Final = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
_DECIMAL: Final = (("E", 27), ("P", 24), ("T", 21), ("G", 18), ("M", 15), ("k", 12), ("", 9), ("m", 6), ("u", 3))
_EXPONENT: Final = re.compile(r"[0-9][eE][-+]?[0-9]+$")
_BAD_QUANTITY: Final = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def quantities(amounts: Object) -> Object:
    """All quantities of a resource list in canonical form. Raises ValueError with the text of kube-apiserver."""
    return {name: canonical(amount if isinstance(amount, str) else _text(amount)) for name, amount in amounts.items()}


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The quantity in canonical form. Raises ValueError."""
    try:
        nanos = parse_quantity(text)
    except BadQuantity as error:
        raise ValueError(_BAD_QUANTITY) from error
    if nanos == 0:
        return "0"
    if text.endswith("i") and nanos % NANOS_PER_UNIT == 0:
        units = nanos // NANOS_PER_UNIT
        for suffix, shift in _BINARY:
            if units % (1 << shift) == 0:
                return f"{units >> shift}{suffix}"
        return str(units)
    exponent = _EXPONENT.search(text) is not None
    for suffix, power in _DECIMAL:
        if nanos % 10**power == 0:
            number = nanos // 10**power
            return f"{number}e{power - 9}" if exponent and power != 9 else f"{number}{'' if exponent else suffix}"
    return f"{nanos}e-9" if exponent else f"{nanos}n"


def _text(amount: float) -> str:
    return str(amount) if isinstance(amount, int) else repr(amount)
