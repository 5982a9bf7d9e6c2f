"""Configuration shared by all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: a failure in CI is a failure here. To look for new ones:
# pytest --hypothesis-profile explore
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", max_examples=20_000, deadline=None)
settings.load_profile("fixed")

_END_TO_END = Path(__file__).parent / "e2e"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=["local", "real"],
        default="local",
        help="real: only the end-to-end tests, on the API server of KUBECONFIG",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--cluster") == "real":
        others = [item for item in items if not item.path.is_relative_to(_END_TO_END)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.path.is_relative_to(_END_TO_END)]
