"""Gangs of tests: manifests, as the dialect reads them, state the same facts as scenarios of the core."""

from collections.abc import Callable
from typing import Any

import pytest

from builders.gangs import facts, manifests
from muster.dialects.marks import MarkSet, PodAge
from muster.dialects.registry import gang_marks, read_gang
from muster.gangs.facts import GangFacts, MatchPolicy, RepairPolicy

RULES = ("minimum", "mode", "match_policy", "repair_policy", "group", "tree", "constraints", "problems")


def read(workload: manifests.Workload) -> GangFacts:
    """Reads the pods' annotations as the mirror of the cluster does."""
    pods = [pod["metadata"] for pod in workload.pods()]
    marks = [
        MarkSet(gang_marks(pod["namespace"], pod["labels"], pod["annotations"]), PodAge(0, pod["name"], pod["name"]))
        for pod in pods
    ]
    return read_gang(workload.id, None, marks)


def rules(gang: GangFacts) -> dict[str, object]:
    return {
        **{name: getattr(gang, name) for name in RULES},
        "group": [name.split("/", 1)[1] for name in gang.group],
        "waiting": gang.waiting_time_seconds if gang.mode == 2 else None,
    }


@pytest.mark.parametrize(
    "of_rules",
    [
        lambda gang: gang,
        lambda gang: gang.needing(3),
        lambda gang: gang.non_strict(60),
        lambda gang: gang.with_match_policy(MatchPolicy.ONLY_WAITING),
        lambda gang: gang.with_match_policy(MatchPolicy.WAITING_AND_RUNNING),
        lambda gang: gang.with_repair_policy(RepairPolicy.EVICT),
        lambda gang: gang.with_group("default/a", "other/b"),
        lambda gang: gang.with_topology("rack: hard pack; node: spread", "racks"),
    ],
    ids=["plain", "minimum", "non_strict", "only_waiting", "waiting_and_running", "evict", "group", "topology"],
)
def test_manifests_and_facts_of_a_gang_state_the_same_rules(of_rules: Callable[[Any], Any]) -> None:
    written, stated = of_rules(manifests.gang("a").of(4)), of_rules(facts.gang("a").of(4))
    assert rules(read(written)) == rules(stated.gang_facts())
    assert [pod["metadata"]["name"] for pod in written.pods()] == [pod.name for pod in stated.pods()]


def test_a_renderer_rejects_a_word_that_it_cannot_express() -> None:
    with pytest.raises(ValueError, match="cannot express homogeneous"):
        manifests.gang("a").of_equal_pods().pods()
    with pytest.raises(ValueError, match="cannot express gates"):
        facts.gang("a").of(1).gated("hold").gang_facts()
