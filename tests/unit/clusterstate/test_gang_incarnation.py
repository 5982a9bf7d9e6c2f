"""A gang that is declared again is another gang; one whose pods are replaced is the same (G16, G35)."""

import pytest

from muster.clusterstate.gang_incarnation import NO_CONTROLLER, Incarnation, Member, MemberState
from muster.dialects.marks import PodAge

LIVE, ENDED, DELETING = MemberState.LIVE, MemberState.ENDED, MemberState.DELETING


class Life:
    """Events of a gang's pods, in order; each gives the incarnation after it."""

    def __init__(self) -> None:
        self._incarnation = Incarnation()
        self._members: dict[str, Member] = {}

    def pod(self, uid: str, state: MemberState = LIVE, *, controller: str = NO_CONTROLLER, second: int = 0) -> str:
        return self._change(uid, Member(PodAge(second, uid, uid), state, controller))

    def remove(self, uid: str) -> str:
        return self._change(uid, None)

    def _change(self, uid: str, after: Member | None) -> str:
        self._incarnation.change(self._members.pop(uid, None), after)
        if after is not None:
            self._members[uid] = after
        self._incarnation.decide(self._members.values())
        return self._incarnation.name


def test_the_first_pod_names_the_incarnation() -> None:
    life = Life()
    assert life.pod("b") == "b"
    assert life.pod("a") == "b"


def test_g16_an_incarnation_outlives_the_pod_that_named_it() -> None:
    life = Life()
    life.pod("a")
    life.pod("b", second=1)
    assert life.pod("a", DELETING) == "a"
    assert life.remove("a") == "a"
    assert life.pod("a2", second=9) == "a"


def test_g35_new_pods_after_all_old_ones_are_being_deleted_are_another_gang() -> None:
    life = Life()
    life.pod("a")
    life.pod("b")
    life.pod("a", DELETING)
    assert life.pod("b", DELETING) == "a", "nothing follows it yet"
    assert life.pod("c", second=5) == "c"
    life.remove("a")
    assert life.remove("b") == "c"


def test_g35_new_pods_after_all_old_ones_are_gone_are_another_gang() -> None:
    life = Life()
    life.pod("a")
    life.remove("a")
    assert life.pod("c") == "c"


def test_the_controllers_uid_names_the_incarnation() -> None:
    life = Life()
    assert life.pod("a", controller="job-1") == "job-1"
    life.pod("a", DELETING, controller="job-1")
    life.remove("a")
    assert life.pod("a2", controller="job-1") == "job-1"


def test_g35_a_recreated_controller_begins_the_next_incarnation() -> None:
    life = Life()
    life.pod("a", controller="job-1")
    life.pod("b", controller="job-1")
    assert life.pod("c", controller="job-2", second=5) == "job-1", "the old pods have not been deleted yet"
    life.pod("a", DELETING, controller="job-1")
    assert life.pod("b", DELETING, controller="job-1") == "job-2"


def test_a_failed_pod_waits_for_its_replacement() -> None:
    life = Life()
    life.pod("a")
    assert life.pod("a", ENDED) == "a"
    assert life.pod("b", second=5) == "a"


def test_ended_pods_of_an_earlier_job_do_not_prolong_it() -> None:
    life = Life()
    life.pod("a", ENDED, controller="job-1")
    assert life.pod("b", controller="job-2", second=5) == "job-2"


def test_later_replicas_agree_while_the_naming_pod_exists() -> None:
    early, late = Life(), Incarnation()
    early.pod("a")
    members = [Member(PodAge(second, uid, uid), LIVE, NO_CONTROLLER) for uid, second in (("b", 1), ("a", 0))]
    for member in members:
        late.change(None, member)
    late.decide(members)
    assert late.name == early.pod("b", second=1)


@pytest.mark.parametrize("controller", [NO_CONTROLLER, "job"])
def test_the_next_live_pod_begins_an_incarnation_after_deletion(controller: str) -> None:
    life = Life()
    assert life.pod("a", DELETING, controller=controller) == (controller or "a")
    assert life.pod("b", controller=controller, second=3) == (controller or "b")
