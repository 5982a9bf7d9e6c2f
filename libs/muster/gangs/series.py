"""The series of a gang or pod: what controllers and users create again and again under one name."""

import re
from typing import Final

_SUFFIX: Final = re.compile(r"([-._]((?=[0-9a-z]*[0-9])[0-9a-z]+|[bcdfghjklmnpqrstvwxz2456789]{5}))+$")
"""Numbers, and the random suffixes of Kubernetes' names, which have five of these letters and digits."""


def series(name: str) -> str:
    """The name without trailing numbers and random suffixes: `etl-28374650` and `etl-x7k2p` are of the series `etl`."""
    return _SUFFIX.sub("", name) or name
