"""Sakkara's constraints as level constraints: every key, and the proposal's examples and stories."""

from typing import Any

import pytest

from builders.gangs.sakkara import group, member
from muster.dialects.sakkara_constraints import parse_constraints
from muster.dialects.values import BadValue
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.topology.constraints import as_text, contradictions


def on_rack(asked: dict[str, Any], size: int = 8) -> list[str]:
    """Returns the constraints in words, without their level."""
    return [as_text(each).removeprefix("rack: ") for each in parse_constraints({"rack": asked}, size).constraints]


@pytest.mark.parametrize(
    ("asked", "constraints"),
    [
        ({}, ["pack"]),
        ({"type": "pack"}, ["pack"]),
        ({"type": "spread"}, ["spread"]),
        ({"type": " Spread "}, ["spread"]),
        ({"type": "spread", "partitions": 3}, ["partition(3)"]),
        ({"partitions": 3}, ["partition(3)"]),
        ({"type": "spread", "partitions": 1}, ["partition(1)"]),
        ({"type": "pack", "partitions": 1}, ["pack"]),
        ({"min": 2, "max": 4}, ["pack", "range(2,4)"]),
        ({"min": 2}, ["pack", "range(2,8)"]),
        ({"min": 9}, ["pack", "range(9,9)"]),
        ({"max": 4}, ["pack", "range(1,4)"]),
        ({"min": 0, "max": 4}, ["pack", "range(1,4)"]),
        ({"factor": 4}, ["pack", "factor(4)"]),
        ({"type": "spread", "min": 2, "max": 4, "factor": 2}, ["spread", "range(2,4)", "factor(2)"]),
        ({"type": None, "min": None, "hard": None}, ["pack"]),
    ],
)
def test_each_key_asks_for_something(asked: dict[str, Any], constraints: list[str]) -> None:
    assert on_rack(asked) == constraints


@pytest.mark.parametrize(
    ("asked", "constraints"),
    [
        ({"hard": True}, ["hard pack"]),
        ({"hard": False}, ["pack"]),
        ({"type": "pack", "hard": True}, ["hard pack"]),
        ({"type": "spread", "hard": True, "partitions": 2}, ["hard partition(2)"]),
        ({"type": "spread", "hard": True, "min": 2, "max": 4}, ["hard spread", "hard range(2,4)"]),
        ({"hard": True, "min": 2, "max": 4}, ["pack", "hard range(2,4)"]),
        ({"hard": True, "factor": 2}, ["pack", "hard factor(2)"]),
    ],
)
def test_constraints_are_soft_unless_hard_and_implied_packing_is_always_soft(
    asked: dict[str, Any], constraints: list[str]
) -> None:
    assert on_rack(asked) == constraints


def test_numbers_and_truths_may_be_texts_as_labels_have_them() -> None:
    assert on_rack({"type": "spread", "partitions": "2", "hard": "true"}) == ["hard partition(2)"]
    assert on_rack({"min": "0", "max": "4", "hard": "False"}) == ["pack", "range(1,4)"]


def test_levels_keep_their_order() -> None:
    asked = {"rack": {"type": "pack"}, "node": {"type": "spread"}}
    assert parse_constraints(asked, 8).constraints == (
        LevelConstraint("rack", LevelPolicy.PACK),
        LevelConstraint("node", LevelPolicy.SPREAD),
    )


def test_story_a_two_equal_partitions_in_separate_racks_packed_on_nodes() -> None:
    asked = {"rack": {"type": "spread", "partitions": 2, "hard": True}, "node": {"type": "pack"}}
    gang = group(member(), size="8", constraints=asked)
    assert [as_text(each) for each in gang.constraints] == [
        "rack: hard partition(2)",
        "node: pack",
        "*: pack",
    ]
    assert contradictions(gang.constraints[:2], ["rack", "node"], 8, 8) == []


def test_user_b_wants_one_server_and_two_to_four_pods_on_each_of_its_nodes() -> None:
    labels = {"type__server": "pack", "type__node": "spread", "min__node": "2", "max__node": "4"}
    gang = group(member(size="6", **{f"constraint__{key}": value for key, value in labels.items()}))
    assert [as_text(each) for each in gang.constraints] == [
        "node: spread",
        "node: range(2,4)",
        "server: pack",
        "*: pack",
    ]


@pytest.mark.parametrize("text", ['{"\\ud800": {}, "\\ud800": {}}', '{"rack": {"type": "\\ud800"}}', '{"a":' * 300])
def test_text_that_no_message_could_hold_is_rejected_with_one_that_can_be_sent(text: str) -> None:
    with pytest.raises(BadValue) as rejected:
        parse_constraints(text, 4)
    assert str(rejected.value).encode()
