"""Gangs that declare a stranger's gang in their group cost that gang nothing (I12)."""

from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.cache.cache import MAX_OUTDATED
from muster.coordinator.core.effects import GangChanged
from muster.coordinator.core.events import Delta, Now, Tick
from muster.gangs.facts import Batch

STRANGERS = 4 * MAX_OUTDATED
WITHOUT_PARTNER = "default/own of its gang group does not exist"
ONE_SIDED = "default/own of its gang group does not declare the same group"


def strangers() -> list[CoreGang]:
    """Gangs without pods, each of which declares a group of itself and the gang `own`."""
    return [gang(f"s{number}", "other").with_group("default/own", f"other/s{number}") for number in range(STRANGERS)]


def reconciled(scenario: Scenario, batch: Batch | None = None) -> list[str]:
    """Ids of the gangs that one step reconciles."""
    leader = scenario.leader
    event = Delta(batch) if batch is not None else Tick()
    effects = leader.step([event], Now(scenario.now, scenario.unix))
    scenario.under_way += [effect for effect in effects if not isinstance(effect, GangChanged)]
    return [effect.gang for effect in effects if isinstance(effect, GangChanged)]


def whys(scenario: Scenario) -> list[str]:
    """Why the strangers' gangs are not tried."""
    return [scenario.leader.cache.gangs[built.id].group.not_ready or "" for built in strangers()]


def declared(scenario: Scenario) -> CoreGang:
    """The strangers' gangs exist; returns the gang that they declare."""
    scenario.change(gangs=[built.gang_facts() for built in strangers()])
    while reconciled(scenario):
        pass
    assert all(WITHOUT_PARTNER in why for why in whys(scenario))
    return gang("own").of(2)


def test_a_change_of_the_declared_gang_reconciles_few_others() -> None:
    scenario = Scenario({"n": 4})
    own = declared(scenario)
    for change in (
        Batch(gangs=(own.gang_facts(),)),
        Batch(gangs=(own.needing(3).gang_facts(),)),
        Batch(pods=tuple(own.pods())),
        Batch(removed_pods=tuple(pod.uid for pod in own.pods()), removed_gangs=(own.id,)),
    ):
        assert len(reconciled(scenario, change)) <= 1 + MAX_OUTDATED


def test_a_change_that_does_not_concern_the_others_reconciles_none_of_them() -> None:
    scenario = Scenario({"n": 4})
    own = declared(scenario)
    scenario.change(gangs=[own.gang_facts()], pods=own.pods())
    while reconciled(scenario):
        pass
    assert set(reconciled(scenario, Batch(gangs=(own.needing(3).gang_facts(),)))) == {own.id}


def test_the_others_learn_in_turn_what_the_declared_gang_lacks() -> None:
    scenario = Scenario({"n": 4})
    own = declared(scenario)
    reconciled(scenario, Batch(gangs=(own.gang_facts(),)))
    assert any(ONE_SIDED in why for why in whys(scenario))
    assert any(WITHOUT_PARTNER in why for why in whys(scenario))
    while any(WITHOUT_PARTNER in why for why in whys(scenario)):
        assert scenario.leader.next_wake() == scenario.now
        assert len(reconciled(scenario)) <= MAX_OUTDATED
    assert all(ONE_SIDED in why for why in whys(scenario))
    wake = scenario.leader.next_wake()
    assert wake is None or wake > scenario.now, "nothing is left to do"


def test_a_gang_that_declares_one_of_the_others_starts_together_with_it() -> None:
    scenario = Scenario({"n": 4})
    own = declared(scenario).with_group("default/own", "other/s7")
    partner = strangers()[7].of(2)
    scenario.change(gangs=[own.gang_facts(), partner.gang_facts()], pods=[*own.pods(), *partner.pods()])
    scenario.run_effects()
    assert (scenario.bound("own"), scenario.bound("s7", "other")) == (2, 2)
