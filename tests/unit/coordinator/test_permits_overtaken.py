"""Permits whose members are replaced while they are written (I1)."""

from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Persist


def test_i1_members_replaced_while_the_permit_is_written_do_not_start_the_rest() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(4)
    scenario.add(built)
    until(scenario, Persist)
    gone = built.pods()[:2]
    scenario.change(remove_pods=[pod.uid for pod in gone], pods=[replace(pod, uid=f"{pod.uid}/new") for pod in gone])
    for number in range(2):
        scenario.intrude(plain_pod(f"x{number}"), "n")
    scenario.run_effects()
    assert scenario.bound("a") == 0
    scenario.change(remove_pods=["default/x0", "default/x1"])
    scenario.run_effects()
    assert scenario.bound("a") == 4
