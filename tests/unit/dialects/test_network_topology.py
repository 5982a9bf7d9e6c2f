"""Koordinator's network topology spec: pack constraints at the levels named like the layers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.gangs.declarations import koordinator_gang, koordinator_group, koordinator_pod, problems_of
from muster.gangs.facts import LevelConstraint, LevelPolicy, Severity

ANNOTATION = "annotation gang.scheduling.koordinator.sh/network-topology-spec"
NAMES = st.sampled_from(["gatherStrategy", "layer", "strategy", "MustGather"])


def spec(**strategies: str) -> str:
    return json.dumps({"gatherStrategy": [{"layer": layer, "strategy": each} for layer, each in strategies.items()]})


def test_prefer_is_soft_and_must_is_hard() -> None:
    group = koordinator_group(
        {"minMember": 2}, network_topology_spec=spec(SpineLayer="PreferGather", Block="MustGather")
    )
    gang = koordinator_gang(koordinator_pod(), definition=group)
    assert gang.problems == ()
    assert gang.constraints == (
        LevelConstraint("SpineLayer", LevelPolicy.PACK, optional=True),
        LevelConstraint("Block", LevelPolicy.PACK, hard=True),
    )


def test_the_node_layer_is_the_level_of_the_nodes() -> None:
    gang = koordinator_gang(
        koordinator_pod(min_available="1", network_topology_spec=spec(NodeTopologyLayer="MustGather"))
    )
    assert gang.constraints == (LevelConstraint("node", LevelPolicy.PACK, hard=True),)


@pytest.mark.parametrize("text", ['{"gatherStrategy":[]}', "{}", '{"gatherStrategy":null}', "null", " {} "])
def test_spec_without_rules_is_no_constraint(text: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="1", network_topology_spec=text))
    assert (gang.constraints, gang.problems) == ((), ())


def rule(**more: Any) -> str:
    return json.dumps({"gatherStrategy": [{"layer": "Block", "strategy": "PreferGather", **more}]})


def test_pod_count_multiple_is_a_hard_factor_of_its_layer() -> None:
    gang = koordinator_gang(koordinator_pod(min_available="1", network_topology_spec=rule(podCountMultiple=4)))
    assert gang.problems == ()
    assert gang.constraints == (
        LevelConstraint("Block", LevelPolicy.PACK, optional=True),
        LevelConstraint("Block", LevelPolicy.FACTOR, hard=True, count=4),
    )


@pytest.mark.parametrize("multiple", [0, 1, None])
def test_multiple_of_one_is_no_constraint(multiple: Any) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="1", network_topology_spec=rule(podCountMultiple=multiple)))
    assert (len(gang.constraints), gang.problems) == (1, ())


def test_unknown_keys_are_named_in_a_warning() -> None:
    text = rule(podCountMultiples=4)[:-1] + ', "gather": 1}'
    gang = koordinator_gang(koordinator_pod(min_available="1", network_topology_spec=text))
    ((severity, message),) = problems_of(gang)
    assert (severity, len(gang.constraints)) == (Severity.WARNING, 1)
    assert 'has "gather", "podCountMultiples", which Muster does not know and ignores' in message


def test_musters_annotation_takes_precedence() -> None:
    group = koordinator_group({"minMember": 2}, network_topology_spec=spec(rack="MustGather"))
    group.annotations["muster.dev/topology"] = "rack: spread"  # type: ignore[index]
    gang = koordinator_gang(koordinator_pod(), definition=group)
    assert gang.constraints == (LevelConstraint("rack", LevelPolicy.SPREAD),)
    assert [severity for severity, _ in problems_of(gang)] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "not of the form"),
        ("{", "not of the form"),
        ('{"gatherStrategy": [7]}', "not of the form"),
        ("[" * 30_000, "not of the form"),
        (spec(rack="Gather"), 'strategy "Gather" in it, which is neither PreferGather nor MustGather'),
        ('{"gatherStrategy":[{"layer":"rack","strategy":["MustGather"]}]}', "which is neither"),
        (spec(**{"a:b": "MustGather"}), 'layer "a:b" in it, which no topology tree can have'),
        ('{"gatherStrategy":[{"strategy":"MustGather"}]}', 'layer "null" in it'),
        (rule(podCountMultiple=-1), 'podCountMultiple "-1" in it, which is not a number of pods'),
        (rule(podCountMultiple=2.5), 'podCountMultiple "2.5" in it'),
        (rule(podCountMultiple="4"), 'podCountMultiple "4" in it'),
        (rule(podCountMultiple=True), 'podCountMultiple "true" in it'),
        (rule(podCountMultiple=2**31), 'podCountMultiple "2147483648" in it'),
        ('{"gatherStrategy": {}}', "not of the form"),
        (spec(**{f"l{n}": "MustGather" for n in range(17)}), "a list of 17 layers"),
        (spec(NodeTopologyLayer="MustGather", node="PreferGather"), 'layer "node" in it twice'),
    ],
)
def test_one_that_cannot_be_read_keeps_the_gang_waiting(text: Any, words: str) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="1", network_topology_spec=text))
    ((severity, message),) = problems_of(gang)
    assert (severity, gang.constraints) == (Severity.BLOCKING, ())
    assert message.startswith(ANNOTATION)
    assert words in message


@given(st.recursive(st.none() | st.text(max_size=8), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)))
def test_any_declaration_is_read_or_reported(value: Any) -> None:
    gang = koordinator_gang(koordinator_pod(min_available="1", network_topology_spec=json.dumps(value)))
    rules = (value or {}).get("gatherStrategy") or [] if value is None or isinstance(value, dict) else []
    assert gang.blocked or len(gang.constraints) == len(rules)
