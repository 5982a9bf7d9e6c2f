"""A planted bug of the core: the file, the original source and its replacement."""

from typing import NamedTuple


class Bug(NamedTuple):
    """`source` occurs exactly once in `file` below services/muster/coordinator/core, or beside it in binding's fence.
    `first` is a test file, or one test of it (FILE::TEST), that detects the bug sooner than random scenarios do; it is
    run before them to save time.
    """

    what: str
    file: str
    source: str
    instead: str
    first: str = ""


def found_scenario(title: str) -> str:
    """The test that plays this scenario of test_found_scenarios.py, as the `first` of a bug."""
    return f"simulation/test_found_scenarios.py::test_found_scenario_passes[{title}]"
