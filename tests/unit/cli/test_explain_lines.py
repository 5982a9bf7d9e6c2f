"""What `muster explain` prints of a gang that has no place by the tree, or was told lies about."""

from muster.cli.explain import explanation_lines
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.placement.v1 import placement_pb2 as placement


def lines(answer: pb.ExplainResponse) -> str:
    return "\n".join(explanation_lines(answer))


def waiting() -> pb.ExplainResponse:
    gang = pb.Gang(
        id="test/ns/g", dialect="test", namespace="ns", name="g", phase=pb.PHASE_QUEUED, minimum=4, members=4
    )
    return pb.ExplainResponse(gang=gang)


def test_the_domain_in_which_most_fit_is_named() -> None:
    answer = waiting()
    answer.explanation.CopyFrom(
        placement.Explanation(
            summary="3 of 4 members fit", fit=3, needed=4, best_domain="zone-1/rack-7", best_domain_fit=3
        )
    )
    assert "3 fit in zone-1/rack-7" in lines(answer)


def test_answers_that_were_not_taken_are_counted_by_reason() -> None:
    answer = waiting()
    assert "not taken" not in lines(answer)
    answer.rejected_answers.add(reason="no room", count=2)
    answer.rejected_answers.add(reason="unknown node or class", count=1)
    assert "3 answers of placement were not taken: 2 no room, 1 unknown node or class" in lines(answer)


def test_a_summary_that_is_the_reason_is_not_told_twice_nor_announced() -> None:
    answer = waiting()
    answer.gang.reason = "gang ns/g cannot start: hard constraints are not supported"
    answer.explanation.CopyFrom(placement.Explanation(summary="hard constraints are not supported"))
    assert "Why it has no place" not in lines(answer)
    answer.explanation.summary = "no room"
    assert "Why it has no place[/]\n  no room" in lines(answer)


def test_what_was_declared_stands_below_the_dialect_in_the_users_words() -> None:
    answer = waiting()
    answer.gang.terms.extend(["minMember: 4 (PodGroup ns/g)", 'note: ["[bold]"] (pod p)'])
    told = lines(answer).splitlines()
    at = next(number for number, line in enumerate(told) if "declared by" in line)
    assert told[at].endswith("test")
    assert [line.strip() for line in told[at + 1 : at + 3]] == [
        "minMember: 4 (PodGroup ns/g)",
        'note: ["\\[bold]"] (pod p)',
    ]
