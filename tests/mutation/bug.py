"""A bug that somebody could write into the core: where, what, and what it would be instead."""

from typing import NamedTuple


class Bug(NamedTuple):
    """`source` is found exactly once in the file of services/muster/coordinator/core. `first` is a file of tests that
    finds it where random stories do not find it as quickly: it is played before all else, to save time.
    """

    what: str
    file: str
    source: str
    instead: str
    first: str = ""
