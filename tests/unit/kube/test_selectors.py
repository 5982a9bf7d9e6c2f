"""Label selectors, as Kubernetes defines them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.gangs.selectors import EVERYTHING_SELECTED, NOTHING_SELECTED, LabelSelector, Operator, Requirement
from muster.kube.selectors import BadSelector, label_selector

WEB = {"app": "web", "tier": "front"}


def selector(content: Any) -> LabelSelector:
    return label_selector(json.dumps(content).encode())


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


@pytest.mark.parametrize(
    ("content", "labels", "selected"),
    [
        (None, WEB, False),
        (None, {}, False),
        ({}, WEB, True),
        ({}, {}, True),
        ({"matchLabels": None, "matchExpressions": None}, {}, True),
        ({"matchLabels": {}, "matchExpressions": []}, WEB, True),
        ({"matchLabels": {"app": "web"}}, WEB, True),
        ({"matchLabels": {"app": "web"}}, {}, False),
        ({"matchLabels": {"app": "web", "tier": "back"}}, WEB, False),
        ({"matchLabels": {"app": ""}}, {"app": ""}, True),
        ({"matchLabels": {"app": ""}}, {}, False),
        (expression("app", "In", "db", "web"), WEB, True),
        (expression("app", "In", "db"), WEB, False),
        (expression("zone", "In", "db"), WEB, False),
        (expression("app", "NotIn", "db"), WEB, True),
        (expression("app", "NotIn", "web"), WEB, False),
        (expression("zone", "NotIn", "db"), WEB, True),
        (expression("app", "Exists"), WEB, True),
        (expression("zone", "Exists"), WEB, False),
        (expression("app", "DoesNotExist"), WEB, False),
        (expression("zone", "DoesNotExist"), WEB, True),
        ({"matchLabels": {"app": "web"}, **expression("tier", "NotIn", "front")}, WEB, False),
        ({"matchLabels": {"app": "web"}, **expression("tier", "In", "front")}, WEB, True),
    ],
)
def test_matches(content: Any, labels: dict[str, str], selected: bool) -> None:
    assert selector(content).matches(labels) is selected


def test_absent_null_and_empty_selectors() -> None:
    assert label_selector(b"") == NOTHING_SELECTED
    assert label_selector(b"null") == NOTHING_SELECTED
    assert label_selector(b"{}") == EVERYTHING_SELECTED


def test_order_makes_no_difference() -> None:
    one = selector({"matchLabels": {"a": "1", "b": "2"}, **expression("c", "In", "x", "y")})
    expressions = [
        {"key": "c", "operator": "In", "values": ["y", "x", "y"]},
        {"key": "b", "operator": "In", "values": ["2"]},
        {"key": "b", "operator": "In", "values": ["2"]},
    ]
    assert selector({"matchExpressions": expressions, "matchLabels": {"a": "1"}}) == one


def test_narrowed_adds_requirements_but_nothing_stays_nothing() -> None:
    more = [Requirement("tier", Operator.IN, ("front",))]
    narrowed = selector({"matchLabels": {"app": "web"}}).narrowed(more)
    assert narrowed.matches(WEB) and not narrowed.matches({"app": "web"})
    assert EVERYTHING_SELECTED.narrowed(more).matches(WEB)
    assert NOTHING_SELECTED.narrowed(more) == NOTHING_SELECTED


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("app=web", '""app=web""'),
        ([], "array"),
        ({"matchLabels": {"app": 1}}, '{"app": 1}'),
        ({"matchLabels": ["app"]}, '["app"]'),
        (expression("app", "Is", "web"), '"Is": it must be one of In, NotIn, Exists, DoesNotExist'),
        (expression("app", ""), 'operator ""'),
        (expression("app", "In"), '"In" and 0 values'),
        (expression("app", "NotIn"), '"NotIn" and 0 values'),
        (expression("app", "Exists", "web"), '"Exists" and 1 values'),
        (expression("app", "DoesNotExist", "web"), '"DoesNotExist" and 1 values'),
    ],
)
def test_malformed_selector_is_quoted(content: Any, words: str) -> None:
    with pytest.raises(BadSelector) as error:
        selector(content)
    assert words in str(error.value)
    assert len(str(error.value)) < 400


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_selector_or_rejected(raw: bytes) -> None:
    try:
        label_selector(raw).matches(WEB)
    except BadSelector as error:
        assert str(error)
