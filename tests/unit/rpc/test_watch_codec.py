"""Facts survive encoding and decoding; messages of newer senders are decoded as the contract says."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs import facts, selectors
from muster.gangs.facts import Batch, GangFacts, GangMode, NodeOperator, PodFacts, PodPhase, Severity, TaintEffect
from muster.gangs.selectors import (
    LabelSelector,
    LabelSet,
    NamespaceFacts,
    Operator,
    PodSelector,
    Requirement,
)
from muster.rpc import pod_class_codec as class_codec
from muster.rpc import watch_codec as codec
from muster.rpc.selector_codec import decode_selector

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
INT32 = st.integers(-(2**31), 2**31 - 1)
POSITIVE = st.integers(1, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)


def several(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


AMOUNTS = several(st.tuples(TEXT, INT64))
REVISIONS = st.dictionaries(TEXT, UINT64, max_size=3)
REQUIREMENTS = several(st.builds(facts.NodeRequirement, TEXT, st.sampled_from(NodeOperator), several(TEXT)))
TERMS = st.builds(facts.NodeSelectorTerm, REQUIREMENTS, REQUIREMENTS)
TOLERATIONS = st.builds(
    facts.Toleration, TEXT, st.sampled_from(facts.TolerationOperator), TEXT, st.sampled_from(TaintEffect)
)
POD_TERMS = st.builds(facts.PodTerm, TEXT, TEXT)
SPREADS = st.builds(
    facts.SpreadConstraint,
    POSITIVE,
    TEXT,
    TEXT,
    st.booleans(),
    POSITIVE,
    st.booleans(),
    st.booleans(),
)
POD_CLASSES = st.builds(
    facts.PodClass,
    TEXT,
    AMOUNTS,
    st.dictionaries(TEXT, TEXT, max_size=3).map(lambda selector: tuple(sorted(selector.items()))),
    st.none() | several(TERMS),
    several(st.builds(facts.PreferredNodeTerm, INT32, TERMS)),
    several(TOLERATIONS),
    several(POD_TERMS),
    several(POD_TERMS),
    several(st.builds(facts.PreferredPodTerm, INT32, POD_TERMS)),
    several(SPREADS),
    several(st.builds(facts.HostPort, TEXT, TEXT, st.integers(1, 65535))),
    several(several(TERMS)),
)
NODES = st.builds(
    facts.NodeFacts,
    TEXT,
    TEXT,
    UINT64,
    AMOUNTS,
    st.dictionaries(TEXT, TEXT, max_size=3),
    several(st.builds(facts.Taint, TEXT, TEXT, st.sampled_from(TaintEffect))),
    st.booleans(),
    st.booleans(),
)
PODS = st.builds(
    PodFacts,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    UINT64,
    TEXT,
    st.sampled_from(PodPhase),
    INT32,
    INT64,
    st.booleans(),
    TEXT,
    st.booleans(),
    st.booleans(),
    TEXT,
    st.booleans(),
    st.booleans(),
    st.floats(allow_nan=False),
    INT64,
    several(TEXT),
    several(TEXT),
)
REFERENCES = st.none() | st.builds(facts.ObjectReference, TEXT, TEXT, TEXT, TEXT, TEXT)
PROBLEMS = several(st.builds(facts.Problem, st.sampled_from(Severity), TEXT))
CONSTRAINTS = st.builds(
    facts.LevelConstraint,
    TEXT,
    st.sampled_from(facts.LevelPolicy),
    st.booleans(),
    *[st.integers(0, 2**31 - 1)] * 3,
    st.booleans(),
)
LABEL_REQUIREMENTS = st.builds(selectors.Requirement, TEXT, st.sampled_from(selectors.Operator), several(TEXT))
SUBGROUPS = st.builds(
    facts.SubgroupPolicy,
    TEXT,
    st.builds(selectors.LabelSelector, several(LABEL_REQUIREMENTS)),
    several(TEXT),
    st.integers(1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    TEXT,
    several(CONSTRAINTS),
)
GANGS = st.builds(
    GangFacts,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    INT32,
    INT32,
    st.sampled_from(GangMode),
    several(TEXT),
    st.floats(allow_nan=False),
    st.none() | INT32,
    INT64,
    REFERENCES,
    PROBLEMS,
    st.sampled_from(facts.MatchPolicy),
    st.sampled_from(facts.RepairPolicy),
    TEXT,
    several(CONSTRAINTS),
    several(TEXT),
    st.booleans(),
    st.booleans(),
    AMOUNTS,
    st.booleans(),
    st.booleans(),
    several(SUBGROUPS),
    several(st.builds(facts.CompositeFacts, TEXT, TEXT, TEXT)),
)
TREES = st.builds(
    facts.TopologyTree,
    TEXT,
    several(st.builds(facts.TreeLevel, TEXT, TEXT)),
    several(st.builds(facts.TreeDomain, TEXT, st.integers(0, 9), st.integers(-1, 99))),
    several(st.tuples(TEXT, st.integers(-1, 99))),
    st.booleans(),
    REFERENCES,
    PROBLEMS,
)
BUDGETS = st.builds(facts.DisruptionBudget, TEXT, INT32)
LABEL_SELECTORS = st.builds(
    LabelSelector, st.none() | several(st.builds(Requirement, TEXT, st.sampled_from(Operator), several(TEXT)))
)
SELECTORS = st.builds(PodSelector, TEXT, several(TEXT), LABEL_SELECTORS, LABEL_SELECTORS)
LABEL_SETS = st.builds(
    lambda id_, namespace, labels: LabelSet(id_, namespace, tuple(labels), tuple(labels.values())),
    TEXT,
    TEXT,
    st.dictionaries(TEXT, TEXT, max_size=3),
)
NAMESPACES = st.builds(NamespaceFacts, TEXT, st.dictionaries(TEXT, TEXT, max_size=3))
BATCHES = st.builds(
    Batch,
    several(POD_CLASSES),
    several(NODES),
    several(TEXT),
    several(PODS),
    several(TEXT),
    several(GANGS),
    several(TEXT),
    REVISIONS,
    REVISIONS,
    several(BUDGETS),
    several(TEXT),
    several(TREES),
    several(TEXT),
    several(TEXT),
    several(SELECTORS),
    several(TEXT),
    several(LABEL_SETS),
    several(TEXT),
    several(NAMESPACES),
    several(TEXT),
)


@given(BATCHES)
def test_a_batch_survives_encoding_and_decoding(batch: Batch) -> None:
    wire = codec.encode_batch(batch).SerializeToString()
    assert codec.decode_batch(pb.Batch.FromString(wire)) == batch


@given(PODS)
def test_a_pod_survives_encoding_and_decoding(pod: PodFacts) -> None:
    assert codec.decode_pod(codec.encode_pod(pod)) == pod


@pytest.mark.parametrize(
    "struct",
    [
        facts.PodClass,
        facts.PodTerm,
        facts.PreferredPodTerm,
        facts.SpreadConstraint,
        facts.HostPort,
        facts.NodeFacts,
        PodFacts,
        GangFacts,
        facts.LevelConstraint,
        facts.SubgroupPolicy,
        facts.TopologyTree,
        facts.DisruptionBudget,
        LabelSet,
        NamespaceFacts,
        Batch,
    ],
)
def test_every_field_of_a_message_is_a_field_of_the_facts(struct: type[msgspec.Struct]) -> None:
    """A field that only one side has would be lost silently."""
    message: Any = getattr(pb, struct.__name__.removesuffix("Facts"))
    local = {"label_set"} if struct is facts.PodClass else set()
    assert set(struct.__struct_fields__) - local == set(message.DESCRIPTOR.fields_by_name)


def test_a_requirement_of_a_newer_contract_is_met_by_no_labels() -> None:
    message = pb.PodSelector(id="s")
    message.label_selector.requirements.add(key="app", operator=9, values=["db"])
    assert not decode_selector(message).labels.matches({"app": "db"})


def test_an_empty_required_affinity_differs_from_none() -> None:
    nowhere = facts.PodClass("a", required_node_affinity=())
    anywhere = facts.PodClass("a")
    assert class_codec.decode_pod_class(class_codec.encode_pod_class(nowhere)).required_node_affinity == ()
    assert class_codec.decode_pod_class(class_codec.encode_pod_class(anywhere)).required_node_affinity is None


def test_a_volume_without_node_terms_differs_from_no_volume() -> None:
    unreachable = facts.PodClass("a", volumes=((), (facts.NodeSelectorTerm(),)))
    assert class_codec.decode_pod_class(class_codec.encode_pod_class(unreachable)) == unreachable


def test_an_empty_spread_constraint_has_the_defaults_of_kubernetes() -> None:
    decoded = class_codec.decode_pod_class(pb.PodClass(spread=[pb.SpreadConstraint(topology_key="zone")])).spread
    assert decoded == (facts.SpreadConstraint(1, "zone", "", hard=False),)


def test_an_unknown_constraint_blocks_its_gang() -> None:
    value: Any = 42
    message = pb.Gang(id="k/ns/a", constraints=[pb.LevelConstraint(level="rack", policy=value)])
    gang = codec.decode_gang(message)
    assert gang.blocked and gang.constraints == ()
    assert "'rack' has policy 42" in gang.problems[0].message


def test_priority_zero_differs_from_none() -> None:
    gang = GangFacts("k/ns/a", "k", "ns", "a", priority=0)
    assert codec.decode_gang(codec.encode_gang(gang)).priority == 0


@pytest.mark.parametrize("number", [0, 99, -1])
def test_unknown_enum_values_are_decoded_as_documented(number: int) -> None:
    value: Any = number
    assert codec.decode_pod(pb.Pod(phase=value)).phase is PodPhase.UNSPECIFIED
    assert codec.decode_gang(pb.Gang(mode=value)).mode is GangMode.STRICT
    assert codec.decode_gang(pb.Gang(match_policy=value)).match_policy is facts.MatchPolicy.ONCE_SATISFIED
    assert codec.decode_gang(pb.Gang(repair_policy=value)).repair_policy is facts.RepairPolicy.YIELD
    assert codec.decode_problem(pb.Problem(severity=value)).severity is Severity.BLOCKING
    toleration = class_codec.decode_pod_class(
        pb.PodClass(tolerations=[pb.Toleration(operator=value, effect=value)])
    ).tolerations[0]
    assert toleration.operator is facts.TolerationOperator.EQUAL
    assert toleration.effect is TaintEffect.NONE
    assert codec.decode_node(pb.Node(taints=[pb.Taint(effect=value)])).taints[0].effect is TaintEffect.NONE


def test_an_unknown_node_requirement_matches_nothing() -> None:
    value: Any = 42
    term = pb.NodeSelectorTerm(labels=[pb.NodeRequirement(key="rack", operator=value, values=["a"])])
    affinity = pb.RequiredNodeAffinity(terms=[term])
    decoded = class_codec.decode_pod_class(pb.PodClass(required_node_affinity=affinity)).required_node_affinity
    assert decoded == (facts.NodeSelectorTerm((facts.NodeRequirement("rack", NodeOperator.IN, ()),)),)


def test_numbers_beyond_int32_are_cut() -> None:
    gang = GangFacts("k/ns/a", "k", "ns", "a", minimum=10**12, total=10**12, priority=-(10**12))
    decoded = codec.decode_gang(codec.encode_gang(gang))
    assert (decoded.minimum, decoded.total, decoded.priority) == (2**31 - 1, 2**31 - 1, -(2**31))


def test_names_that_many_pods_share_are_interned() -> None:
    pods = tuple(PodFacts(f"uid-{n}", "team-a", f"pod-{n}", "0f" * 16, gang="koordinator/team-a/x") for n in range(2))
    wire = codec.encode_batch(Batch(pods=pods)).SerializeToString()
    first, second = codec.decode_batch(pb.Batch.FromString(wire)).pods
    assert first.class_id is second.class_id
    assert first.namespace is second.namespace
    assert first.gang is second.gang
