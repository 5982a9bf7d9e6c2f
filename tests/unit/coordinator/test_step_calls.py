"""The cost of a step does not depend on gangs that the step does not concern (I12)."""

from cProfile import Profile

import pytest

from builders.core.scenario import Scenario
from builders.gangs.facts import gang


def calls_of_one_pod(waiting: int) -> int:
    """Calls of Python functions in the step that observes one pod, beside so many waiting gangs."""
    scenario = Scenario({"n": 1})
    for number in range(waiting):
        scenario.add(gang(f"waits{number}").of(2))
    scenario.pass_time(1)  # until all of them are explained
    incomplete = gang("incomplete").of(3)
    first, second, _ = incomplete.pods()
    scenario.change(gangs=[incomplete.gang_facts()], pods=[first])
    scenario.run()
    profile = Profile(builtins=False)
    profile.enable()
    scenario.change(pods=[second])
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("waiting", [30, 300])
def test_a_step_with_one_pod_makes_as_many_calls_beside_few_as_beside_many_gangs(waiting: int) -> None:
    assert calls_of_one_pod(waiting) <= 1.1 * calls_of_one_pod(3)
