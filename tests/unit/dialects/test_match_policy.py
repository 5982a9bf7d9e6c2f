"""The match policy by both of its annotations, in the dialects that have it."""

import pytest

from builders.gangs.declarations import koordinator_gang, koordinator_group, koordinator_pod, marked
from muster.dialects.marks import MarkSet, PodAge
from muster.dialects.registry import gang_marks, read_gang
from muster.gangs.facts import GangFacts, MatchPolicy, Severity

ALIAS = "pod-group.scheduling.sigs.k8s.io/match-policy"
NAMES = {
    "once-satisfied": MatchPolicy.ONCE_SATISFIED,
    "waiting-and-running": MatchPolicy.WAITING_AND_RUNNING,
    "only-waiting": MatchPolicy.ONLY_WAITING,
}


def lightweight(policy: str) -> GangFacts:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "A", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}
    marks = gang_marks("a", labels, {ALIAS: policy})
    return read_gang("lightweight/a/A", None, [MarkSet(marks, PodAge(0, "w-0", "u0"))])


@pytest.mark.parametrize(("text", "policy"), NAMES.items())
def test_g17_g18_the_policy_is_read_from_pods_and_pod_group(text: str, policy: MatchPolicy) -> None:
    assert koordinator_gang(koordinator_pod(min_available="3", match_policy=text)).match_policy is policy
    group = koordinator_group({"minMember": 3}, match_policy=text)
    assert koordinator_gang(koordinator_pod(), definition=group).match_policy is policy
    assert lightweight(text).match_policy is policy


def test_the_alias_means_the_same_and_gives_way_with_a_warning() -> None:
    alone = {"gang.scheduling.koordinator.sh/name": "A", "gang.scheduling.koordinator.sh/min-available": "3"}
    alone[ALIAS] = "only-waiting"
    gang = koordinator_gang(marked(annotations=alone))
    assert (gang.match_policy, gang.problems) == (MatchPolicy.ONLY_WAITING, ())
    both = alone | {"gang.scheduling.koordinator.sh/match-policy": "waiting-and-running"}
    gang = koordinator_gang(marked(annotations=both))
    assert gang.match_policy is MatchPolicy.WAITING_AND_RUNNING
    assert [problem.severity for problem in gang.problems] == [Severity.WARNING]


def test_the_default_policy_is_once_satisfied() -> None:
    assert koordinator_gang(koordinator_pod(min_available="3")).match_policy is MatchPolicy.ONCE_SATISFIED


@pytest.mark.parametrize("text", ["Once-Satisfied", "running", "x" * 1000])
def test_a_malformed_policy_is_quoted_and_the_default_is_used(text: str) -> None:
    for gang in (koordinator_gang(koordinator_pod(min_available="3", match_policy=text)), lightweight(text)):
        assert gang.match_policy is MatchPolicy.ONCE_SATISFIED
        (problem,) = gang.problems
        assert problem.severity is Severity.WARNING
        assert text[:60] in problem.message
        assert problem.message.endswith("once-satisfied is used instead")
