"""Explanations survive the way through messages; sentences that are too long are cut."""

from hypothesis import given
from hypothesis import strategies as st

from muster.gangs.solve import Explanation
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.explanation_codec import decode_explanation, encode_explanation

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
COUNTS = st.integers(0, 2**31 - 1)
EXPLANATIONS = st.builds(
    Explanation,
    TEXT,
    TEXT,
    TEXT,
    COUNTS,
    COUNTS,
    st.lists(st.tuples(TEXT, COUNTS), max_size=3).map(tuple),
    st.lists(st.tuples(TEXT, st.integers(0, 2**62)), max_size=3).map(tuple),
    TEXT,
    COUNTS,
    TEXT,
)


@given(EXPLANATIONS)
def test_it_is_the_same_after_the_way_over_the_wire(explanation: Explanation) -> None:
    wire = encode_explanation(explanation).SerializeToString()
    assert decode_explanation(pb.Explanation.FromString(wire)) == explanation


def test_every_field_of_the_message_is_one_of_the_value() -> None:
    assert set(Explanation.__struct_fields__) == set(pb.Explanation.DESCRIPTOR.fields_by_name)


def test_what_would_fill_an_event_is_cut() -> None:
    decoded = decode_explanation(pb.Explanation(summary="x" * 100_000, remedy="y" * 100_000))
    assert 0 < len(decoded.summary) < 10_000
    assert 0 < len(decoded.remedy) < 10_000
