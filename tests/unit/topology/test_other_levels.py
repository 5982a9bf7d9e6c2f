"""Constraints on "*" apply to every level without another constraint of the gang."""

import pytest

from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.topology.constraints import on_levels, parse_constraints

LEVELS = ("zone", "rack", "node")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        pytest.param("rack: hard pack", "rack: hard pack", id="none"),
        pytest.param("*: pack", "zone: pack; rack: pack; node: pack", id="all"),
        pytest.param("rack: spread; *: pack", "rack: spread; zone: pack; node: pack", id="others"),
        pytest.param(
            "node: spread; *: pack, factor(2)",
            "node: spread; zone: pack; rack: pack; zone: factor(2); rack: factor(2)",
            id="two",
        ),
        pytest.param(
            "zone: pack; rack: pack; node: pack; *: spread", "zone: pack; rack: pack; node: pack", id="no other"
        ),
    ],
)
def test_every_other_level_has_the_constraint(given: str, meant: str) -> None:
    assert on_levels(parse_constraints(given), LEVELS) == parse_constraints(meant)


def test_optional_constraints_on_missing_levels_are_dropped() -> None:
    spine, rack = LevelConstraint("spine", LevelPolicy.PACK, optional=True), LevelConstraint("rack", LevelPolicy.PACK)
    assert on_levels((spine, rack), LEVELS) == (rack,)
    assert on_levels((spine,), ("spine", "node")) == (spine,)
    others = LevelConstraint("*", LevelPolicy.SPREAD)
    assert on_levels((spine, others), ("rack", "node")) == parse_constraints("rack: spread; node: spread")
