"""Writes to a Sakkara group's ConfigMap and pods at every stage."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from builders.gangs.sakkara import group, member, progress
from muster.dialects.progress import MemberProgress, Progress, Stage, Writes
from muster.dialects.registry import labels_at_bind, progress_writes, writes_progress
from muster.dialects.sakkara_status import MAX_BYTES
from muster.gangs.facts import ObjectReference

BEGAN = 1719932038.62352  # 2024-07-02T14:53:58.62352Z


def at(name: str, rank: int | None, *path: str, bound: bool = False) -> MemberProgress:
    """A member in these domains, the last of which is its node."""
    *domains, node = path
    return MemberProgress(f"uid-of-{name}", name, node, tuple(domains), rank, attempts=1, bound=bound)


PLACED = (
    at("pod-0", 0, "rack-0", "node-0", bound=True),
    at("pod-4", 1, "rack-0", "node-0", bound=True),
    at("pod-1", 2, "rack-0", "node-2", bound=True),
    at("pod-2", 3, "rack-1", "node-3", bound=True),
)


def written(reported: Progress) -> dict[str, Any]:
    """Returns the ConfigMap's keys to set or, with None, to remove."""
    [write] = progress_writes(reported).objects
    assert write.object == ObjectReference("v1", "ConfigMap", "a", "A", "uid-of-A")
    assert (write.plural, write.subresource, write.conditions) == ("configmaps", "", ())
    assert write.patch.keys() == {"data"}
    data: dict[str, Any] = write.patch["data"]
    assert all(value is None or isinstance(value, str) for value in data.values())
    return data


def labels(writes: Writes) -> dict[str, dict[str, str | None]]:
    return {write.name: dict(write.labels) for write in writes.pods}


def test_sakkara_writes_progress() -> None:
    assert writes_progress("sakkara/a/A")


@pytest.mark.parametrize(
    ("stage", "status"),
    [
        (Stage.GATHERING, "Waiting"),
        (Stage.READY, "Ready"),
        (Stage.ASSIGNED, "Assigned"),
        (Stage.PERMITTED, "Permitted"),
        (Stage.BOUND, "Bound"),
        (Stage.ENDED, "Ended"),
        (Stage.TIMED_OUT, "Waiting"),
        (Stage.PREEMPTED, "Preempted"),
    ],
)
def test_every_stage_has_a_status(stage: Stage, status: str) -> None:
    assert written(progress(stage, *PLACED))["status"] == status


@pytest.mark.parametrize("stage", [Stage.ASSIGNED, Stage.PERMITTED, Stage.BOUND])
def test_placement_and_rank_list_the_assigned_pods(stage: Stage) -> None:
    data = written(progress(stage, *reversed(PLACED)))
    assert json.loads(data["placement"]) == {
        "root": {
            "rack-0": {"node-0": {"pod-0": {}, "pod-4": {}}, "node-2": {"pod-1": {}}},
            "rack-1": {"node-3": {"pod-2": {}}},
        }
    }
    assert data["rank"] == "[(pod-0,0) (pod-4,1) (pod-1,2) (pod-2,3)]"
    assert data["omitted"] is None


@pytest.mark.parametrize("stage", [Stage.GATHERING, Stage.READY, Stage.TIMED_OUT, Stage.PREEMPTED])
def test_a_group_without_places_has_neither_placement_nor_ranks(stage: Stage) -> None:
    data = written(progress(stage, *PLACED))
    assert data["placement"] is None
    assert data["rank"] is None


def test_trees_may_have_any_levels_and_nodes_may_be_outside() -> None:
    members = (at("p-0", 0, "hall", "row", "rack", "node"), at("p-1", 1, "lonely"), MemberProgress("uid-of-p-2", "p-2"))
    data = written(progress(Stage.PERMITTED, *members))
    assert json.loads(data["placement"]) == {
        "root": {"hall": {"row": {"rack": {"node": {"p-0": {}}}}}, "lonely": {"p-1": {}}}
    }
    assert data["rank"] == "[(p-0,0) (p-1,1)]"


def test_a_group_of_one_has_rank_0() -> None:
    assert written(progress(Stage.BOUND, at("only", None, "rack", "node")))["rank"] == "[(only,0)]"


def test_placement_too_large_for_a_config_map_is_omitted_with_a_reason() -> None:
    count = MAX_BYTES // 500
    many = [at(f"{'p' * 250}-{number}", number, "rack", f"n-{number}") for number in range(count)]
    data = written(progress(Stage.BOUND, *many))
    assert data["placement"] is None
    assert data["rank"] is None
    assert "too many for a ConfigMap; each pod has its rank as a label" in data["omitted"]
    fewer = written(progress(Stage.BOUND, *many[: count // 2]))
    assert fewer["omitted"] is None
    assert json.loads(fewer["placement"])["root"].keys() == {"rack"}


def test_short_names_do_not_make_the_patch_too_large_either() -> None:
    many = [at(f"p{number}", number, f"n{number}") for number in range(MAX_BYTES // 40)]
    for count in (len(many), len(many) * 9 // 10, len(many) // 2):
        [write] = progress_writes(progress(Stage.BOUND, *many[:count])).objects
        assert len(msgspec.json.encode(write.patch)) < 1 << 20


# -- times


def test_a_bound_group_has_begin_end_and_total_times() -> None:
    data = written(progress(Stage.BOUND, *PLACED, began=BEGAN, ended=BEGAN + 0.154213, solver_seconds=0.0127))
    assert data["schedBeginTime"] == "2024-07-02T14:53:58.623520Z"
    assert data["schedEndTime"] == "2024-07-02T14:53:58.777733Z"
    assert data["schedTotalTimeMilli"] == "154"
    assert data["schedSolverTimeMilli"] == "13"


TIMES = {"schedBeginTime", "schedEndTime", "schedTotalTimeMilli", "schedSolverTimeMilli"}


@pytest.mark.parametrize("stage", [Stage.READY, Stage.ASSIGNED, Stage.PERMITTED, Stage.TIMED_OUT])
def test_a_group_on_its_way_has_begun_and_not_ended(stage: Stage) -> None:
    data = written(progress(stage, *PLACED, began=BEGAN, solver_seconds=1.0))
    assert {key: data[key] for key in TIMES} == {
        "schedBeginTime": "2024-07-02T14:53:58.623520Z",
        "schedEndTime": None,
        "schedTotalTimeMilli": None,
        "schedSolverTimeMilli": None,
    }


@pytest.mark.parametrize("stage", [Stage.READY, Stage.ASSIGNED, Stage.PERMITTED, Stage.BOUND, Stage.PREEMPTED])
def test_times_that_are_not_known_stay_as_they_were_written(stage: Stage) -> None:
    assert not written(progress(stage, *PLACED)).keys() & TIMES


@pytest.mark.parametrize("stage", [Stage.GATHERING, Stage.PREEMPTED])
def test_a_group_keeps_the_times_of_its_start_until_the_next_one_begins(stage: Stage) -> None:
    assert not written(progress(stage, began=BEGAN, ended=BEGAN + 1)).keys() & TIMES


def test_a_clock_set_back_causes_no_negative_time() -> None:
    assert written(progress(Stage.BOUND, *PLACED, began=BEGAN, ended=BEGAN - 3))["schedTotalTimeMilli"] == "0"


# -- preemption


@pytest.mark.parametrize(
    ("preemptor", "name"),
    [("sakkara/a/urgent", "urgent"), ("sakkara/b/urgent", "b/urgent"), ("koordinator/a/urgent", "urgent")],
)
def test_an_evicted_group_names_its_preemptor(preemptor: str, name: str) -> None:
    assert written(progress(Stage.PREEMPTED, preemptor=preemptor))["preemptor"] == name


@pytest.mark.parametrize("stage", [Stage.ASSIGNED, Stage.PERMITTED, Stage.BOUND])
def test_a_group_that_starts_again_names_no_preemptor(stage: Stage) -> None:
    assert written(progress(stage, *PLACED))["preemptor"] is None


@pytest.mark.parametrize("stage", [Stage.GATHERING, Stage.READY, Stage.TIMED_OUT])
def test_the_preemptor_stays_until_the_group_is_assigned_again(stage: Stage) -> None:
    assert "preemptor" not in written(progress(stage))


# -- pods


def test_a_pod_has_its_labels_before_it_is_bound() -> None:
    assert labels_at_bind("sakkara/a/A", 2, 1) == {
        "sakkara.member.rank": "2",
        "sakkara.member.status": "Permitted",
        "sakkara.member.retries": "1",
    }
    assert labels_at_bind("sakkara/a/A", None, 1)["sakkara.member.rank"] == "0"
    assert labels_at_bind("koordinator/a/A", 2, 1) == {}


def test_pods_of_a_bound_group_are_labelled_bound() -> None:
    members = (*PLACED[:2], replace(PLACED[2], bound=False))
    assert labels(progress_writes(progress(Stage.BOUND, *members))) == {
        name: {"sakkara.member.rank": rank, "sakkara.member.status": "Bound", "sakkara.member.retries": "1"}
        for name, rank in (("pod-0", "0"), ("pod-4", "1"))
    }


@pytest.mark.parametrize(("stage", "status"), [(Stage.READY, "Ready"), (Stage.GATHERING, "Waiting")])
def test_a_pod_that_lost_its_place_loses_its_rank(stage: Stage, status: str) -> None:
    lost, fresh = MemberProgress("u", "lost", rank=3, attempts=2), MemberProgress("v", "fresh", attempts=2)
    assert labels(progress_writes(progress(stage, lost, fresh))) == {
        "lost": {"sakkara.member.status": status, "sakkara.member.retries": "2", "sakkara.member.rank": None}
    }


@pytest.mark.parametrize("stage", [Stage.ASSIGNED, Stage.PERMITTED, Stage.PREEMPTED])
def test_pods_being_bound_or_evicted_are_not_written(stage: Stage) -> None:
    assert progress_writes(progress(stage, *PLACED)).pods == ()


def test_a_group_without_config_map_writes_only_to_pods() -> None:
    writes = progress_writes(Progress(group(member(size="4")), Stage.BOUND, PLACED))
    assert writes.objects == ()
    assert len(writes.pods) == 4
