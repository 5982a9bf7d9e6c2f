"""Configuration shared by all tests."""

import gc
import inspect
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: a failure in CI is a failure here. To look for new ones:
# pytest --hypothesis-profile explore
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", max_examples=20_000, deadline=None)
settings.load_profile("fixed")

_END_TO_END = Path(__file__).parent / "e2e"


@pytest.fixture(autouse=True)
def _no_error_is_lost(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test during which asyncio logs that a task or future has failed and no one retrieved the exception."""
    lost: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.addFilter(lambda record: "exception was never retrieved" in record.getMessage())
    handler.emit = lambda record: lost.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    try:
        yield
        if inspect.iscoroutinefunction(request.function):
            gc.collect()  # asyncio reports when the task is deleted, which may be part of a cycle
            gc.freeze()  # what remains need not be scanned after each test
    finally:
        logger.removeHandler(handler)
    assert not lost, "\n".join(lost)


def pytest_collection_finish() -> None:
    """Exempts modules and collected tests from the garbage collection after each test."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=["local", "real", "containers"],
        default="local",
        help="real: only the end-to-end tests, on the API server of KUBECONFIG; containers: tests/cluster",
    )
    parser.addoption("--update-screenshots", action="store_true", help="write the pictures in docs/console")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--cluster") == "real":
        others = [item for item in items if not item.path.is_relative_to(_END_TO_END)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.path.is_relative_to(_END_TO_END)]
