"""Solve requests and responses survive encoding and decoding; invalid requests are rejected."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from muster.gangs.facts import LevelConstraint, LevelPolicy, kind_id
from muster.gangs.solve import (
    Assignment,
    Composite,
    Explanation,
    NominatedCapacity,
    PodsOnNode,
    PotentialVictim,
    Reservation,
    Role,
    SolveGang,
    SolveGroup,
    SolveOutcome,
    SolveRequest,
    SolveResult,
    VictimGang,
)
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.errors import RpcError
from muster.rpc.solve_codec import (
    decode_explanation,
    decode_solve_request,
    decode_solve_results,
    encode_explanation,
    encode_solve_request,
    encode_solve_result,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
CLASSES = st.text(st.characters(codec="utf-8", exclude_characters="@"), max_size=12)
KINDS = CLASSES | st.builds(kind_id, CLASSES, TEXT)
COUNTS = st.integers(0, 2**31 - 1)
EXPLANATIONS = st.builds(
    Explanation,
    TEXT,
    TEXT,
    CLASSES,
    COUNTS,
    COUNTS,
    st.lists(st.tuples(TEXT, COUNTS), max_size=3).map(tuple),
    st.lists(st.tuples(TEXT, st.integers(0, 2**62)), max_size=3).map(tuple),
    TEXT,
    COUNTS,
    TEXT,
)
PODS = st.builds(PodsOnNode, TEXT, KINDS, st.integers(1, 2**31 - 1))
RESULTS = st.builds(
    SolveResult,
    TEXT,
    st.sampled_from(SolveOutcome),
    st.lists(st.builds(Assignment, TEXT, COUNTS, TEXT, COUNTS), max_size=3).map(tuple),
    st.none() | EXPLANATIONS,
    st.lists(st.builds(VictimGang, TEXT, st.booleans(), st.lists(PODS, max_size=3).map(tuple)), max_size=2).map(tuple),
)
CONSTRAINTS = st.builds(
    LevelConstraint,
    TEXT,
    st.sampled_from(LevelPolicy),
    st.booleans(),
    COUNTS,
    COUNTS,
    COUNTS,
    st.booleans(),
)


@st.composite
def requests(draw: st.DrawFn) -> SolveRequest:
    """Valid requests: names that must be unique are, and minimums are in range."""
    groups = []
    for group in range(draw(st.integers(0, 3))):
        gangs = []
        for gang in range(draw(st.integers(1, 2))):
            roles = tuple(draw(st.lists(st.builds(Role, KINDS, st.integers(1, 1000)), min_size=1, max_size=3)))
            gangs.append(
                SolveGang(
                    f"{group}/{gang}",
                    draw(st.integers(1, sum(role.wanted for role in roles))),
                    roles,
                    draw(TEXT),
                    tuple(draw(st.lists(CONSTRAINTS, max_size=2))),
                    tuple(draw(st.lists(PODS, max_size=2))),
                    tuple(draw(st.lists(TEXT, max_size=2))),
                )
            )
        composites: tuple[Composite, ...] = ()
        if partial := draw(st.booleans()):
            pass
        elif draw(st.booleans()):
            gangs = [msgspec.structs.replace(each, composite=1) for each in gangs]
            inner = Composite(draw(st.integers(0, len(gangs))), 0, draw(COUNTS), draw(TEXT), draw(TEXT), (draw(TEXT),))
            composites = (Composite(1), inner)
        groups.append(SolveGroup(f"group {group}", tuple(gangs), partial, composites))
    victims = draw(st.integers(0, 2)) if len(groups) < 2 else 0
    return SolveRequest(
        draw(st.dictionaries(TEXT, COUNTS, max_size=2)),
        tuple(Reservation(draw(TEXT), draw(KINDS), (f"uid {at}",)) for at in range(draw(st.integers(0, 2)))),
        tuple(groups),
        tuple(draw(st.lists(st.builds(NominatedCapacity, TEXT, st.tuples(st.tuples(TEXT, COUNTS))), max_size=2))),
        tuple(
            PotentialVictim(f"victim {at}", draw(COUNTS), draw(COUNTS), tuple(draw(st.lists(PODS, max_size=2))))
            for at in range(victims)
        ),
    )


@given(requests())
def test_a_request_survives_encoding_and_decoding(request: SolveRequest) -> None:
    wire = encode_solve_request(request, {"group 0": "a trace"}).SerializeToString()
    message = pb.SolveRequest.FromString(wire)
    assert decode_solve_request(message) == request
    assert [group.traceparent for group in message.groups[:2]] == ["a trace", ""][: len(message.groups)]


@given(RESULTS)
def test_a_result_survives_encoding_and_decoding(result: SolveResult) -> None:
    message = pb.GroupResult()
    encode_solve_result(result, message)
    assert decode_solve_results([pb.GroupResult.FromString(message.SerializeToString())]) == (result,)


@given(EXPLANATIONS)
def test_an_explanation_survives_encoding_and_decoding(explanation: Explanation) -> None:
    wire = encode_explanation(explanation).SerializeToString()
    assert decode_explanation(pb.Explanation.FromString(wire)) == explanation


@pytest.mark.parametrize(
    ("value", "message", "only_in_message"),
    [
        (Explanation, pb.Explanation, set()),
        (SolveResult, pb.GroupResult, set()),
        (Assignment, pb.Assignment, set()),
        (VictimGang, pb.VictimGang, set()),
        (SolveRequest, pb.SolveRequest, set()),
        (SolveGroup, pb.GangGroup, {"traceparent"}),
        (SolveGang, pb.Gang, set()),
        (Composite, pb.Composite, set()),
        (Role, pb.Role, {"label_set"}),
        (PodsOnNode, pb.PodsOnNode, {"label_set"}),
        (Reservation, pb.Reservation, {"label_set"}),
        (NominatedCapacity, pb.NominatedCapacity, set()),
        (PotentialVictim, pb.PotentialVictim, set()),
    ],
)
def test_every_field_of_the_message_is_one_of_the_value(
    value: type[Struct], message: type[pb.Explanation], only_in_message: set[str]
) -> None:
    fields = {*value.__struct_fields__} - {"invalid"}  # what the reader found
    assert {*fields, *only_in_message} == set(message.DESCRIPTOR.fields_by_name)


def test_text_that_would_fill_an_event_is_cut() -> None:
    decoded = decode_explanation(pb.Explanation(summary="x" * 100_000, remedy="y" * 100_000))
    assert 0 < len(decoded.summary) < 10_000
    assert 0 < len(decoded.remedy) < 10_000


def test_an_outcome_of_a_newer_contract_is_an_error() -> None:
    with pytest.raises(ValueError, match="9"):
        decode_solve_results([pb.GroupResult(id="g", outcome=9)])  # type: ignore[arg-type]


ROLE = pb.Role(class_id="x", wanted=2)
GROUP = pb.GangGroup(id="g", gangs=[pb.Gang(id="gang", minimum=2, roles=[ROLE])])


def composite_of(request: pb.SolveRequest, minimum: int) -> pb.GangGroup:
    """The group, whose gang is in a composite."""
    [group] = request.groups
    group.composites.add(minimum=minimum)
    group.gangs[0].composite = 1
    return group


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda request: request.groups.add(id="h"), "group 'h' has no gangs"),
        (lambda request: request.groups.append(GROUP), "group 'g' is listed twice"),
        (lambda request: request.groups[0].ClearField("id"), "a group has an empty id"),
        (lambda request: request.groups[0].gangs[0].ClearField("roles"), "gang 'gang' has no members"),
        (lambda request: request.groups[0].gangs[0].roles.add(class_id="y"), "role 1 wants 0 members"),
        (lambda request: request.groups[0].gangs.append(GROUP.gangs[0]), "gang 'gang' is listed twice"),
        (lambda request: setattr(request.groups[0].gangs[0], "minimum", 3), "minimum 3 is out of range"),
        (lambda request: request.reservations.add(pod_uids=["p", "p"]), "reserved pod 'p' is listed twice"),
        (lambda request: request.potential_victims.add(), "a potential victim has an empty id"),
        (
            lambda request: request.groups[0].gangs[0].constraints.add(level="rack", policy=77),
            "gang 'gang': the constraint on level 'rack' has policy 77",
        ),
        (lambda request: setattr(request.groups[0].gangs[0], "composite", 1), "composite 1 does not exist"),
        (lambda request: request.groups[0].composites.add(), "composite 1 has no gangs"),
        (lambda request: request.groups[0].composites.add(parent=1), "composite 1 has parent 1"),
        (lambda request: composite_of(request, minimum=2), "composite 1 needs 2 of 1 children"),
        (lambda request: setattr(composite_of(request, minimum=1), "partial", True), "partial and has composites"),
    ],
)
def test_an_invalid_request_is_rejected(change: Callable[[pb.SolveRequest], object], message: str) -> None:
    request = pb.SolveRequest(groups=[GROUP])
    change(request)
    with pytest.raises(RpcError, match=message) as raised:
        decode_solve_request(request)
    assert raised.value.code.name == "INVALID_ARGUMENT"
