"""Text of `muster explain`."""

import time

from muster.cli.explain import explanation_lines, played_lines
from muster.cli.played_changes import Played
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.placement.v1 import placement_pb2 as placement


def lines(answer: pb.ExplainResponse) -> str:
    return "\n".join(explanation_lines(answer))


def waiting() -> pb.ExplainResponse:
    gang = pb.Gang(
        id="test/ns/g", dialect="test", namespace="ns", name="g", phase=pb.PHASE_QUEUED, minimum=4, members=4
    )
    return pb.ExplainResponse(gang=gang)


def test_a_gang_without_members_is_called_ended() -> None:
    answer = pb.ExplainResponse(gang=pb.Gang(namespace="ns", name="g", phase=pb.PHASE_ENDED, minimum=4))
    printed = lines(answer)
    assert "is [dim]ended[/]: it has started, and no member is left: all have ended or were deleted." in printed
    assert "0 exist, 0 bound; 4 must start together" in printed


def test_the_best_domain_is_named() -> None:
    answer = waiting()
    answer.explanation.CopyFrom(
        placement.Explanation(
            summary="3 of 4 members fit", fit=3, needed=4, best_domain="zone-1/rack-7", best_domain_fit=3
        )
    )
    assert "3 fit in zone-1/rack-7, the best domain" in lines(answer)


def test_rejected_solve_responses_are_counted_by_reason() -> None:
    answer = waiting()
    assert "rejected" not in lines(answer)
    answer.rejected_placements.add(reason="no free capacity", count=2)
    answer.rejected_placements.add(reason="unknown node or pod class", count=1)
    assert (
        "[dim]rejected[/]     3 solve responses of placement: 2 no free capacity, 1 unknown node or pod class"
        in lines(answer)
    )


def test_a_summary_that_repeats_the_reason_is_left_out_with_its_heading() -> None:
    answer = waiting()
    answer.gang.reason = "gang ns/g cannot start: hard constraints are not supported"
    answer.explanation.CopyFrom(placement.Explanation(summary="hard constraints are not supported"))
    assert "Why it does not fit" not in lines(answer)
    answer.explanation.summary = "no free capacity"
    assert "Why it does not fit[/]\n  no free capacity" in lines(answer)


def test_declared_terms_are_quoted_below_the_dialect() -> None:
    answer = waiting()
    answer.gang.terms.extend(["minMember: 4 (PodGroup ns/g)", 'note: ["[bold]"] (pod p)'])
    printed = lines(answer).splitlines()
    at = next(number for number, line in enumerate(printed) if "declared by" in line)
    assert printed[at].endswith("test")
    assert [line.strip() for line in printed[at + 1 : at + 3]] == [
        "minMember: 4 (PodGroup ns/g)",
        'note: ["\\[bold]"] (pod p)',
    ]


def test_a_gang_that_was_shrunk_says_when_it_may_grow() -> None:
    answer = waiting()
    assert "shrunk" not in lines(answer)
    answer.grows_after_unix_millis = int(time.time() * 1000) + 3_600_000_000
    assert "was shrunk; may grow again in 3600000 s" in lines(answer)
    answer.grows_after_unix_millis = 1000
    assert "was shrunk; may grow again in 0 s" in lines(answer)


def test_pods_that_exist_and_do_not_count_are_not_called_missing() -> None:
    gang = pb.Gang(namespace="ns", name="g", phase=pb.PHASE_GATHERING, minimum=4, members=1)
    answer = pb.ExplainResponse(gang=gang)
    for number, state in enumerate(("pending", "gated", "gated", "ended")):
        answer.members.add(pod=f"ns/p{number}", state=state)
    assert "3 exist (1 ended, 2 gated), 0 bound; 4 must start together, [yellow]1 missing[/]" in lines(answer)


def test_what_was_not_played_is_called_what_the_gang_lacks() -> None:
    answer = waiting()
    assert "What it lacks" not in lines(answer)
    answer.would_help.append("at least 2 more cpu on nodes that it may use")
    assert "What it lacks[/]\n  - at least 2 more cpu on nodes that it may use" in lines(answer)
    assert "would start" not in lines(answer)


def test_changes_that_were_played_are_listed_as_such() -> None:
    printed = "\n".join(played_lines(Played(False, ["there were one more node like [n]"])))
    assert "It would start now if[/]  (each was played on a copy of the cluster)" in printed
    assert "  - there were one more node like \\[n]" in printed
    assert "no single change" in "\n".join(played_lines(Played(False, [])))
    assert "It would start now[/] as the cluster is" in "\n".join(played_lines(Played(True, [])))
