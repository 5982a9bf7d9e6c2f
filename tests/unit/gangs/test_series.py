"""Series of names."""

import pytest

from muster.gangs.series import series


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("etl-28374650", "etl"),
        ("etl-28374650-x7k2p", "etl"),
        ("train-x7k2p", "train"),
        ("train-bcdfg", "train"),
        ("train", "train"),
        ("train-audio", "train-audio"),
        ("train-large", "train-large"),
        ("12", "12"),
    ],
)
def test_runs_of_one_series_have_the_same_name(name: str, expected: str) -> None:
    assert series(name) == expected
