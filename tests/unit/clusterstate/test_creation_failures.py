"""Facts of an incomplete gang say why its controller cannot create the other pods, as long as that is true."""

from typing import Final

import pytest

from builders.clusterstate.history import SIGS_POD_GROUPS, History, Object, controller, pod_group_object, pod_object
from muster.clusterstate.incomplete_gangs import SAME_SECONDS
from muster.gangs.facts import Batch
from muster.kube.api_resources import PODS
from muster.kube.creation_failures import CreationFailure

GANG: Final = "koordinator/ml/g"
START: Final = 1767225600
QUOTA: Final = "Job train: exceeded quota: team"


def pod(name: str, owner: str = "train", minimum: int = 4, **fields: object) -> Object:
    marks = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": str(minimum),
    }
    return pod_object(name, owner=owner, annotations=marks, **fields)  # type: ignore[arg-type]


def failure(second: int = 10, text: str = QUOTA, owner: str = "train") -> CreationFailure:
    return CreationFailure(owner, START + second, text)


def incomplete(pods: int = 3) -> History:
    """A gang that lacks one of four pods, created in the first second."""
    history = History()
    history.pods(*(pod(f"p-{number}") for number in range(pods)))
    return history


def listed(history: History, *failures: CreationFailure) -> Batch:
    return history.state.note_creation_failures({GANG: failures})


def reported(history: History) -> str:
    return history.state.gangs.facts[GANG].creation_failure


def test_it_is_sent_when_it_is_found_and_when_it_is_gone() -> None:
    history = incomplete()
    assert [each.creation_failure for each in listed(history, failure()).gangs] == [QUOTA]
    assert listed(history, failure()).gangs == ()
    assert [each.creation_failure for each in listed(history).gangs] == [""]


def test_it_ends_with_the_missing_pod() -> None:
    history = incomplete()
    listed(history, failure())
    batch = history.pods(pod("p-3"))
    assert [each.creation_failure for each in batch.gangs] == [""]
    assert GANG not in history.state.gangs.incomplete.by_namespace.get("ml", ())
    history.remove(PODS, "uid-p-3")
    assert reported(history) == "", "another list would find it, if it still were so"


def test_it_ends_with_a_newer_pod_of_the_controller() -> None:
    history = incomplete(2)
    listed(history, failure(10))
    history.pods(pod("p-2", second=10))
    assert reported(history) == QUOTA, "created before the next one was refused"
    history.pods(pod("p-2", second=11))
    assert reported(history) == ""
    listed(history, failure(10))
    assert reported(history) == ""
    listed(history, failure(12))
    assert reported(history) == QUOTA


def test_a_newer_pod_of_another_controller_changes_nothing() -> None:
    history = incomplete(2)
    listed(history, failure(10))
    history.pods(pod("p-2", owner="other", second=30))
    assert reported(history) == QUOTA


def test_it_ends_when_the_minimum_is_lowered() -> None:
    history = incomplete()
    listed(history, failure())
    history.pods(*(pod(f"p-{number}", minimum=3) for number in range(3)))
    assert reported(history) == ""


def test_succeeded_members_are_not_missing() -> None:
    history = incomplete()
    assert GANG in history.state.gangs.incomplete.by_namespace["ml"]
    history.pods(pod("p-3", phase="Succeeded"))
    assert not history.state.gangs.incomplete.by_namespace


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_gang_whose_pods_have_all_ended_lacks_none(phase: str) -> None:
    history = incomplete()
    history.pods(*(pod(f"p-{number}", phase=phase) for number in range(3)))
    assert not history.state.gangs.incomplete.by_namespace


def test_failed_members_that_are_not_created_again_are_missing() -> None:
    history = incomplete()
    history.pods(pod("p-0", phase="Failed"))
    listed(history, failure())
    assert reported(history) == QUOTA


def test_a_gang_without_pods_is_known_by_the_controller_of_its_definition() -> None:
    history = History()
    group = pod_group_object("g", minimum=4, group="scheduling.sigs.k8s.io")
    group["metadata"]["ownerReferences"] = [controller("train", "kubeflow.org/v1 MPIJob")]
    history.pod_groups(group)
    assert history.state.gangs.controllers_of(GANG) == {"train"}
    listed(history, failure())
    assert reported(history) == QUOTA
    history.remove(SIGS_POD_GROUPS, "uid-group-g")
    assert not history.state.gangs.incomplete.by_namespace
    assert listed(history, failure()).gangs == (), "the gang is gone"


def test_of_several_controllers_the_one_reported_first_stays() -> None:
    history = incomplete(2)
    history.pods(pod("p-2", owner="other"))
    listed(history, failure(10), failure(11, "Job other: no", "other"))
    assert reported(history) == "Job other: no"
    listed(history, failure(50), failure(11, "Job other: no", "other"))
    assert reported(history) == "Job other: no"
    listed(history, failure(50))
    assert reported(history) == QUOTA


@pytest.mark.parametrize(
    ("before", "after", "at_once"),
    [
        ("Job a: used: 8, limited: 16", "Job a: used: 12, limited: 16", True),
        ("Job a: used: 64Gi", "Job a: used: 65000Mi", False),
        ("Job a: request 8f3a denied", "Job a: request 1bb2 denied", False),
        ("Job a: [maximum cpu is 4, maximum memory is 2Gi]", "Job a: [maximum memory is 2Gi, maximum cpu is 4]", False),
        ("Job a: exceeded quota: team", "Job a: violates PodSecurity", True),
    ],
)
def test_a_text_that_says_the_same_is_not_replaced_at_once(before: str, after: str, at_once: bool) -> None:
    history = incomplete()
    listed(history, failure(10, before))
    listed(history, failure(40, after))
    assert reported(history) == (after if at_once else before)
    listed(history, failure(10 + SAME_SECONDS, after))
    assert reported(history) == after


def test_i11_nothing_is_left_of_gangs_that_are_gone() -> None:
    history = incomplete()
    listed(history, failure())
    history.remove(PODS, *(f"uid-p-{number}" for number in range(3)))
    gangs = history.state.gangs
    assert not gangs.incomplete.by_namespace
    assert not gangs.incomplete.take_changed()
    assert gangs.controllers_of(GANG) == set()
