"""Members of gangs, as lifecycle keeps them."""

from typing import Any

import msgspec

from muster.kube.object_changes import Removed
from muster.kube.objects import Pod, decode_pod
from muster.lifecycle.pod_groups.members import GangChange, Members, mark_sets

TRAIN, EVAL = "kube-batch/ml/train", "kube-batch/ml/eval"


def pod(
    name: str, group: str = "train", *, scheduler: str = "muster", phase: str = "Pending", age: int = 0, **metadata: Any
) -> Pod:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    content = {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": f"2026-01-31T12:00:{age:02}Z",
            "annotations": annotations,
            **metadata,
        },
        "spec": {"schedulerName": scheduler},
        "status": {"phase": phase},
    }
    return decode_pod(msgspec.json.encode(content))


def names(members: Members, gang_id: str = TRAIN) -> list[str]:
    return [member.name for member in members.of(gang_id)]


def test_members_are_kept_by_gang_the_oldest_first() -> None:
    members = Members(["muster"])
    for each in (pod("young", age=9), pod("old"), pod("other", "eval"), pod("plain", "")):
        members.put(each)
    assert (names(members), names(members, EVAL)) == (["old", "young"], ["other"])
    assert [each.oldest.name for each in mark_sets(members.of(TRAIN))] == ["old"]


def test_irrelevant_changes_report_no_gang() -> None:
    members = Members(["muster"])
    assert members.put(pod("a")) == [GangChange(TRAIN)]
    assert members.put(pod("a", resourceVersion="2")) == []
    assert members.put(Removed("uid-nobody")) == []
    assert members.put(pod("plain", "")) == []


def test_a_member_that_moves_touches_both_gangs() -> None:
    members = Members(["muster"])
    members.put(pod("a"))
    assert {each.gang_id for each in members.put(pod("a", "eval"))} == {TRAIN, EVAL}
    assert (names(members), names(members, EVAL)) == ([], ["a"])


def test_a_stopped_member_is_reported_whatever_the_cause() -> None:
    members = Members(["muster"])
    for change in (
        pod("a", phase="Failed"),
        pod("a", phase="Running", deletionTimestamp="2026-01-31T12:01:00Z"),
        Removed("uid-a"),
    ):
        members.put(pod("a", phase="Running"))
        assert members.put(change) == [GangChange(TRAIN, stopped=True)]
        members.put(Removed("uid-a"))


def test_a_deleted_member_stays_deleted_despite_older_states() -> None:
    members = Members(["muster"])
    members.put(pod("a", phase="Running"))
    members.mark_deleted(members.of(TRAIN)[0])
    members.put(pod("a", phase="Running", resourceVersion="2"))
    assert [member.deleting for member in members.of(TRAIN)] == [True]
    members.put(Removed("uid-a"))
    members.put(pod("a", phase="Running"))
    assert [member.deleting for member in members.of(TRAIN)] == [False]


def test_pods_of_other_schedulers_are_no_members_but_are_known() -> None:
    members = Members(["muster"])
    assert not members.is_foreign(TRAIN)
    members.put(pod("a", scheduler="other"))
    assert (names(members), members.is_foreign(TRAIN)) == ([], True)
    members.put(pod("b"))
    assert (names(members), members.is_foreign(TRAIN)) == (["b"], False)
