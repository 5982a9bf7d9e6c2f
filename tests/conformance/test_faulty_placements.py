"""Every faulty placement fails the cases about its fault and passes others."""

from collections.abc import Callable
from typing import Literal

import pytest

from builders.placement import faulty_placements as faulty
from builders.placement.faulty_placements import AlteredCluster, Factory, each_assignment, each_result, serving
from muster.conformance.suite import Options, Report, Verdict, run
from muster.firstfit.cluster import Cluster, Follower
from muster.firstfit.service import FirstFit
from muster.localcluster.ports import free_port

Field = Literal["reservations", "nominated", "min_revision"]


async def report_on(factory: Factory, follower: Follower, *only: str, call_seconds: float = 10) -> Report:
    listen = f"127.0.0.1:{free_port()}"
    async with serving(factory, follower, listen) as target:
        return await run(Options(target, listen, call_seconds=call_seconds, only=only))


def failed(report: Report) -> dict[str, str]:
    return {one.case.id: one.reason for one in report.outcomes if one.verdict is Verdict.FAILED}


def altered_answers(alter: faulty.Alteration) -> Factory:
    return lambda follower: faulty.AlteredAnswers(follower, alter)


def ignoring(field: Field) -> Factory:
    return lambda follower: faulty.IgnoresFields(follower, lambda request: request.ClearField(field))


@pytest.mark.parametrize(
    ("alter", "case", "words"),
    [
        (each_assignment(faulty.unknown_node), "S01", "node 'nowhere' does not exist"),
        (
            each_assignment(faulty.one_member_too_many),
            "S01",
            "6 members of role 0 of gang 'five' are placed, but it wants 5",
        ),
        (each_assignment(faulty.foreign_gang), "S01", "role 0 of gang 'another gang' is not in the request"),
        (each_result(faulty.all_on_one_node), "S02", "has 4000 of 'cpu' allocatable, but"),
        (each_result(faulty.duplicated), "S01", "10 members of role 0 of gang 'five' are placed"),
        (each_result(faulty.one_assignment_missing), "S10", "its minimum is"),
        (each_result(faulty.unknown_outcome), "S01", "outcome 99 is unknown"),
        (each_result(faulty.unrequested_partial), "S09", "the group does not allow partial placement"),
        (each_result(faulty.unknown_victim), "S12", "'not a potential victim' is not a potential victim"),
        (faulty.reversed_results, "S01", "those of the answer ['group of three'"),
    ],
)
async def test_harmful_answers_are_unsafe(alter: faulty.Alteration, case: str, words: str) -> None:
    report = await report_on(altered_answers(alter), Follower(), case)
    assert words in failed(report)[case]
    assert report.outcomes[0].unsafe
    assert not report.conforms


@pytest.mark.parametrize(
    ("alter", "cases"),
    [
        (faulty.no_pods, {"S04", "S05", "S08", "S26", "S27"}),
        (faulty.all_ready, {"S20"}),
        (faulty.no_taints, {"S21"}),
        (faulty.no_memory_requested, {"S02"}),
        (faulty.without_rules(node_selector=()), {"S22"}),
        (faulty.without_rules(required_node_affinity=None), {"S22"}),
        (faulty.without_rules(volumes=()), {"S23"}),
        (faulty.without_rules(host_ports=()), {"S30"}),
        (faulty.without_rules(required_pod_anti_affinity=()), {"S31", "S32"}),
        (faulty.without_rules(required_pod_affinity=()), {"S33"}),
        (faulty.without_rules(spread=()), {"S34"}),
    ],
)
async def test_a_placement_that_ignores_part_of_the_cluster_fails(
    alter: Callable[[Cluster], object], cases: set[str]
) -> None:
    report = await report_on(FirstFit, AlteredCluster(alter), "S01", *cases)
    assert failed(report).keys() == cases
    assert not report.conforms


async def test_a_placement_that_keeps_removed_nodes_fails() -> None:
    report = await report_on(FirstFit, faulty.keeps_removed_nodes(Follower()), "S24")
    assert "does not exist" in failed(report)["S24"]


@pytest.mark.parametrize(
    ("field", "cases"),
    [("reservations", {"S06"}), ("nominated", {"S07"}), ("min_revision", {"R01", "R02", "L04", "L05"})],
)
async def test_a_placement_that_ignores_request_fields_fails(field: Field, cases: set[str]) -> None:
    assert cases <= failed(await report_on(ignoring(field), Follower(), *cases)).keys()


async def test_a_placement_that_ignores_constraints_fails() -> None:
    report = await report_on(
        lambda follower: faulty.IgnoresFields(follower, faulty.no_constraints),
        Follower(),
        "S33",
        "S35",
        "S36",
        "S37",
        "S38",
        "S41",
    )
    assert failed(report).keys() == {"S35", "S36", "S37", "S38", "S41"}
    assert not report.conforms


async def test_a_placement_that_ignores_min_revision_fails() -> None:
    report = await report_on(FirstFit, faulty.IgnoresRevision(), "R", "L04")
    assert {"R01", "R02", "L04"} <= failed(report).keys()


async def test_a_placement_that_uses_half_a_snapshot_fails() -> None:
    report = await report_on(FirstFit, faulty.UsesHalfSnapshot(), "R05")
    assert "node 'b' does not exist" in failed(report)["R05"]
    assert not report.conforms


async def test_random_order_of_assignments_fails_determinism() -> None:
    report = await report_on(altered_answers(each_result(faulty.random_order)), Follower(), "D")
    assert "D01" in failed(report)
    assert report.conforms, "the order of assignments is not unsafe"


async def test_a_placement_that_keeps_state_fails() -> None:
    assert "D01" in failed(await report_on(faulty.KeepsState, Follower(), "D01"))


async def test_a_placement_that_never_answers_fails_every_case() -> None:
    report = await report_on(faulty.NeverAnswers, Follower(), "S01", "B01", call_seconds=0.3)
    assert all("DEADLINE_EXCEEDED" in reason for reason in failed(report).values())
    assert failed(report).keys() == {"S01", "B01"}


async def test_a_placement_that_raises_fails() -> None:
    assert "INTERNAL" in failed(await report_on(faulty.Raises, Follower(), "S01"))["S01"]


async def test_a_placement_that_accepts_invalid_requests_fails() -> None:
    report = await report_on(faulty.AcceptsInvalid, Follower(), "B")
    assert failed(report).keys() == {"B01", "B02", "B03", "B04", "B05", "B07"}


async def test_claimed_features_are_tested() -> None:
    report = await report_on(faulty.ClaimsAllFeatures, Follower(), "C2", "C3", "T0")
    assert report.count(Verdict.SKIPPED) == 0
    assert {"C22", "C31", "T05", "T06"} <= failed(report).keys()
    assert report.conforms
