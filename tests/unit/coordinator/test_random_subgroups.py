"""Random gangs with subgroups: they start as declared and keep their racks, whatever happens to pods and leaders."""

from collections import defaultdict
from random import Random

import pytest
from msgspec.structs import replace

from builders.core.objects import racks
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.gangs.facts import PodPhase

STEPS = 8


def check(scenario: Scenario, gangs: list[CoreGang]) -> None:
    """Each subgroup with bound pods is in one rack, and enough subgroups of each gang started whole."""
    for each in gangs:
        bound: defaultdict[str, list[str]] = defaultdict(list)
        for pod in scenario.cluster.pods.values():
            if pod.gang == each.id and pod.node and pod.label_set:
                bound[pod.label_set].append(scenario.cluster.rack_of(pod.node))
        assert all(len(set(where)) == 1 for where in bound.values()), f"{each.id} is divided: {dict(bound)}"
        [policy] = each.subgroups
        whole = sum(len(where) >= policy.size for where in bound.values())
        assert not bound or whole >= policy.minimum, f"{each.id} runs with {whole} of {policy.minimum} subgroups"


@pytest.mark.parametrize("seed", range(40))
def test_subgroups_start_whole_and_keep_their_racks(seed: int) -> None:
    chance = Random(seed)
    names = "abcdef"[: chance.randint(2, 6)]
    scenario = Scenario({name: chance.randint(1, 4) for name in names})
    scenario.change(trees=[racks(r0=" ".join(names[::2]), r1=" ".join(names[1::2]))])
    gangs: list[CoreGang] = []
    for number in range(STEPS):
        if chance.random() < 0.5 and len(gangs) < 3:
            sizes = [chance.randint(1, 3) for _ in range(chance.randint(1, 3))]
            minimum = chance.randint(1, len(sizes))
            each = gang(f"g{number}").needing(minimum * min(sizes)).of(sum(sizes))
            gangs.append(each.in_subgroups(*sizes, size=min(sizes), minimum=minimum))
            scenario.add(gangs[-1])
        elif chance.random() < 0.5:
            pods = [pod for pod in scenario.cluster.pods.values() if pod.node]
            if pods:  # its controller creates it again
                lost = chance.choice(pods)
                again = replace(lost, uid=f"{lost.uid}-{number}", node="", phase=PodPhase.PENDING)
                scenario.change(remove_pods=[lost.uid], pods=[again])
        else:
            scenario.crash()
            scenario.start()
        scenario.run()
        check(scenario, gangs)
