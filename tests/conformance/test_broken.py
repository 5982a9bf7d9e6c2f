"""Placements that are wrong in one way fail the cases that ask for that, and pass others."""

from collections.abc import Callable
from typing import Literal

import pytest

from builders.placement import broken as broken
from builders.placement.broken import Make, Mistaken, each_assignment, each_result, serving
from muster.conformance.suite import Options, Report, Verdict, run
from muster.firstfit.picture import Follower, Picture
from muster.firstfit.service import FirstFit
from muster.localcluster.ports import free_port

Field = Literal["reservations", "nominated", "min_revision"]


async def tried(make: Make, follower: Follower, *only: str, call_seconds: float = 10) -> Report:
    listen = f"127.0.0.1:{free_port()}"
    async with serving(make, follower, listen) as target:
        return await run(Options(target, listen, call_seconds=call_seconds, only=only))


def failed(report: Report) -> dict[str, str]:
    return {one.case.id: one.why for one in report.outcomes if one.verdict is Verdict.FAILED}


def spoiled(spoil: broken.Spoil) -> Make:
    return lambda follower: broken.Spoiled(follower, spoil)


def deaf(field: Field) -> Make:
    return lambda follower: broken.Deaf(follower, lambda request: request.ClearField(field))


@pytest.mark.parametrize(
    ("spoil", "case", "words"),
    [
        (each_assignment(broken.nowhere), "S01", "there is no node 'nowhere'"),
        (
            each_assignment(broken.one_too_many),
            "S01",
            "6 members of role 0 of gang 'five' are placed, 5 were asked for",
        ),
        (each_assignment(broken.of_another), "S01", "role 0 of gang 'somebody else' was not asked for"),
        (each_result(broken.all_on_one), "S02", "has 4000 of 'cpu' and would have to give"),
        (each_result(broken.twice), "S01", "10 members of role 0 of gang 'five' are placed"),
        (each_result(broken.without_the_last), "S10", "its minimum is"),
        (each_result(broken.garbage), "S01", "outcome 99 is none"),
        (each_result(broken.partly), "S09", "it is to start whole or not at all"),
        (each_result(broken.removing), "S12", "'nobody offered this' was not offered for removal"),
        (broken.backwards, "S01", "the results are of ['group of three'"),
    ],
)
async def test_answers_that_would_do_harm_are_unsafe(spoil: broken.Spoil, case: str, words: str) -> None:
    report = await tried(spoiled(spoil), Follower(), case)
    assert words in failed(report)[case]
    assert report.outcomes[0].unsafe
    assert not report.conforms


@pytest.mark.parametrize(
    ("see", "cases"),
    [
        (broken.no_pods, {"S04", "S05", "S08", "S26", "S27"}),
        (broken.all_in_service, {"S20"}),
        (broken.no_taints, {"S21"}),
        (broken.no_cpu_asked, {"S02"}),
        (broken.without_rules(node_selector=()), {"S22"}),
        (broken.without_rules(required_node_affinity=None), {"S22"}),
        (broken.without_rules(volumes=()), {"S23"}),
        (broken.without_rules(host_ports=()), {"S30"}),
        (broken.without_rules(required_pod_anti_affinity=()), {"S31", "S32"}),
        (broken.without_rules(required_pod_affinity=()), {"S33"}),
        (broken.without_rules(spread=()), {"S34"}),
    ],
)
async def test_who_does_not_see_everything_fails_the_cases_about_it(
    see: Callable[[Picture], object], cases: set[str]
) -> None:
    report = await tried(FirstFit, Mistaken(see), "S01", *cases)
    assert failed(report).keys() == cases
    assert not report.conforms


async def test_who_keeps_nodes_that_are_gone_fails() -> None:
    report = await tried(FirstFit, broken.nobody_goes(Follower()), "S24")
    assert "there is no node" in failed(report)["S24"]


@pytest.mark.parametrize(
    ("field", "cases"),
    [("reservations", {"S06"}), ("nominated", {"S07"}), ("min_revision", {"R01", "R02", "L04", "L05"})],
)
async def test_who_does_not_hear_the_whole_question_fails(field: Field, cases: set[str]) -> None:
    assert cases <= failed(await tried(deaf(field), Follower(), *cases)).keys()


async def test_who_passes_over_constraints_breaks_them() -> None:
    report = await tried(
        lambda follower: broken.Deaf(follower, broken.no_constraints),
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


async def test_who_does_not_wait_for_a_revision_fails() -> None:
    report = await tried(FirstFit, broken.Hasty(), "R", "L04")
    assert {"R01", "R02", "L04"} <= failed(report).keys()


async def test_half_a_snapshot_is_not_one() -> None:
    report = await tried(FirstFit, broken.Impatient(), "R05")
    assert "there is no node 'b'" in failed(report)["R05"]
    assert not report.conforms


async def test_chance_is_not_determinism() -> None:
    report = await tried(spoiled(each_result(broken.at_random)), Follower(), "D")
    assert "D01" in failed(report)
    assert report.conforms, "the order of assignments does no harm"


async def test_what_is_kept_of_answers_is_seen() -> None:
    assert "D01" in failed(await tried(broken.Keeping, Follower(), "D01"))


async def test_silence_fails_every_case_that_asks() -> None:
    report = await tried(broken.Silent, Follower(), "S01", "B01", call_seconds=0.3)
    assert all("DEADLINE_EXCEEDED" in why for why in failed(report).values())
    assert failed(report).keys() == {"S01", "B01"}


async def test_who_falls_over_fails() -> None:
    assert "INTERNAL" in failed(await tried(broken.Raising, Follower(), "S01"))["S01"]


async def test_who_refuses_nothing_fails_the_cases_of_bad_input() -> None:
    report = await tried(broken.Lenient, Follower(), "B")
    assert failed(report).keys() == {"B01", "B02", "B03", "B04", "B05", "B07"}


async def test_who_names_features_is_tested_for_them_and_does_no_harm_by_it() -> None:
    report = await tried(broken.Boastful, Follower(), "C2", "C3", "T0")
    assert report.count(Verdict.SKIPPED) == 0
    assert {"C22", "C31", "T05", "T06"} <= failed(report).keys()
    assert report.conforms
