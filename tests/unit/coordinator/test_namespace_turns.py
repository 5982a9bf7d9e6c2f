"""Turns of namespaces: however many gangs one namespace has, the first gang of another one is tried soon."""

from cProfile import Profile

import pytest
from msgspec.structs import replace

from builders.core.flood import Flood, create, namespaces_of, only_elsewhere, solves_until
from builders.core.objects import node
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Rules, SolveFailed
from muster.coordinator.core.queue.turns import ActiveGroups, Answer, Entry
from muster.coordinator.core.slices import run_to_end

NODES = {f"n{number}": 4 for number in range(20)}


def elsewhere(name: str = "single", namespace: str = "elsewhere") -> CoreGang:
    """A gang that fits, created after all others."""
    return gang(name, namespace).of(2).created(10_000_000)


def flooded(flood: Flood, *, replicas: int = 1, rules: Rules | None = None) -> Scenario:
    """A namespace has these gangs, for which there is no place; the first request is under way."""
    scenario = Scenario(NODES, rules=rules or Rules())
    scenario.scale(replicas)
    scenario.solver = only_elsewhere(scenario, flood.namespace)
    create(scenario, flood.batch())
    return scenario


def starts(scenario: Scenario, built: CoreGang, most: int = 1000) -> int:
    """Solve requests until the gang is permitted, the one under way included."""
    return solves_until(scenario, lambda: scenario.gang(built.name, built.namespace).permit.granted, most)


def next_requests(scenario: Scenario, count: int) -> list[Solve]:
    """The next `count` solve requests after the one under way, without searches for victims."""

    def requests() -> list[Solve]:
        return [solve for solve in scenario.solves if not solve.potential_victims]

    before = len(requests())
    solves_until(scenario, lambda: len(requests()) >= before + count)
    return requests()[before:]


# -- a single gang beside a flood


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(Flood(), id="created-earlier"),
        pytest.param(Flood(priority=10), id="of-higher-priority"),
        pytest.param(Flood(distinct=False), id="equal"),
        pytest.param(Flood(50, members=600, cpu=1), id="of-600-pods"),
        pytest.param(Flood(20, members=2000, cpu=1, priority=10), id="of-2000-pods"),
    ],
)
def test_a_gang_waits_for_two_solves_beside_20000_of_another_namespace(flood: Flood) -> None:
    scenario = flooded(flood)
    scenario.add(elsewhere())
    assert starts(scenario, elsewhere()) <= (2 if flood.members < 1000 else 3)


def test_gangs_that_fit_are_no_reason_to_wait_either() -> None:
    scenario = Scenario({f"n{number}": 100 for number in range(100)})
    create(scenario, Flood(3000, cpu=1, distinct=False).batch())
    scenario.add(elsewhere())
    assert starts(scenario, elsewhere()) <= 2


def test_several_replicas_of_placement_make_no_one_wait_longer() -> None:
    scenario = flooded(Flood(2000), replicas=2)
    scenario.add(elsewhere())
    assert starts(scenario, elsewhere()) <= 4


def test_every_new_gang_of_the_namespace_is_tried_as_soon() -> None:
    scenario = flooded(Flood(2000, priority=10))
    for number in range(5):
        scenario.add(elsewhere(f"g{number}"))
        assert starts(scenario, elsewhere(f"g{number}")) <= 2


def test_a_gang_that_is_edited_all_the_time_keeps_nobody_waiting() -> None:
    scenario = flooded(Flood(300))
    edited = gang("f0", "flood").of(2, cpu=4)
    scenario.add(elsewhere())
    for number in range(20):
        scenario.change(gangs=[replace(edited.gang_facts(), total=2 + number)])
    assert starts(scenario, elsewhere()) <= 2


def test_groups_sent_one_by_one_alternate_with_other_namespaces() -> None:
    scenario = flooded(Flood(500))
    refused = scenario.under_way.pop(0)
    assert isinstance(refused, Solve)
    scenario.tell(SolveFailed(refused.solve_id, "it cannot be read", refused=True))
    scenario.add(elsewhere())
    assert starts(scenario, elsewhere()) <= 3


def test_a_gang_too_large_for_its_turn_begins_a_request() -> None:
    scenario = Scenario({f"n{number}": 100 for number in range(20)})
    scenario.solver = only_elsewhere(scenario)
    create(scenario, Flood(200, members=20, priority=10).batch())
    large = gang("large", "elsewhere").of(1700).created(9)
    scenario.add(large)
    assert starts(scenario, large) <= 3


def test_gangs_that_woke_up_keep_nobody_waiting() -> None:
    scenario = flooded(Flood(2000))
    scenario.run_effects()
    scenario.change(nodes=[node("new", 8)])
    scenario.add(elsewhere())
    assert starts(scenario, elsewhere()) <= 3


# -- turns and queue order


def test_what_fits_into_one_request_is_sent_in_queue_order() -> None:
    scenario = Scenario(NODES)
    create(scenario, Flood(1).batch())
    for number in range(30):
        scenario.add(gang(f"g{number:02}", f"ns{number % 3}").of(1).created(number).with_priority(number % 2))
    scenario.do(0)
    solve = scenario.solves[-1]
    keys = [(number % 2, -number) for number in range(30)]
    expected = [f"g{-negative:02}" for _, negative in sorted(keys, reverse=True)]
    assert [group.id.rpartition("/")[2] for group in solve.groups] == expected


def test_a_namespace_of_lower_priority_has_one_group_in_a_request() -> None:
    scenario = flooded(Flood(1000, priority=10))
    for number in range(20):
        scenario.add(elsewhere(f"g{number}"))
    requests = next_requests(scenario, 4)
    assert [namespaces_of(solve)["elsewhere"] for solve in requests] == [1] * 4
    assert {sum(namespaces_of(solve).values()) for solve in requests} == {100}


def test_a_namespace_of_the_same_priority_has_a_fifth_of_a_request() -> None:
    scenario = flooded(Flood(1000))
    for number in range(50):
        scenario.add(elsewhere(f"g{number}"))
    assert namespaces_of(next_requests(scenario, 1)[0])["elsewhere"] == 20


def test_groups_of_a_request_are_in_queue_order_whosever_turn_it_is() -> None:
    scenario = flooded(Flood(1000, created=50))
    scenario.add(gang("later", "another").of(1).created(10_000))
    scenario.add(gang("prior", "elsewhere").of(1).created(200).with_priority(5))
    names = [group.id.rpartition("/")[2] for group in next_requests(scenario, 1)[0].groups]
    assert names[0] == "prior"
    assert names.index("later") == len(names) - 1


def test_many_namespaces_are_served_one_after_another() -> None:
    scenario = flooded(Flood(2000, priority=10))
    for number in range(100):  # no two are equal: they would be of one class
        three = (elsewhere(name, f"ns{number}").running_for(3 * number + each) for each, name in enumerate("abc", 1))
        scenario.add(*three)
    tried = {namespace for solve in next_requests(scenario, 5) for namespace in namespaces_of(solve)}
    assert len(tried) == 101


def test_a_place_is_left_to_equal_gangs_of_other_namespaces_twice_at_most() -> None:
    scenario = Scenario({"n": 1})
    create(scenario, Flood(1200, cpu=1, distinct=False).batch())
    scenario.add(gang("single", "elsewhere").of(2).created(10_000_000).needing(2))
    scenario.run_effects()
    assert not scenario.bound("single", "elsewhere")
    scenario.change(nodes=[node(f"large{number}", 100) for number in range(30)])
    scenario.add(elsewhere("other"))
    assert starts(scenario, elsewhere("other")) <= 4


# -- the active groups themselves


def entry(namespace: str, number: int, priority: int = 0) -> tuple[str, tuple[int, int, int, str, str]]:
    return f"{namespace}/{number}", (1, -priority, number, namespace, str(number))


def take(active: ActiveGroups, count: int, *closed: str) -> list[str]:
    """Groups of the next request; those of some namespaces must not be solved now."""
    taken = []

    def offer(head: Entry, _max_pods: int) -> Answer:
        if head[0][3] in closed:
            return Answer.PASSED_OVER
        active.discard(head[1])
        taken.append(head[1])
        return Answer.TAKEN

    run_to_end(active.take(count, 1000, offer))
    return taken


def test_a_namespace_that_conflicts_with_solves_under_way_is_waited_for() -> None:
    active = ActiveGroups()
    for number in range(1000):
        active.put(*entry("a", number))
    active.put(*entry("b", 5000))
    assert len(take(active, 10, "b")) == 10
    assert len(take(active, 10, "b")) == 10
    assert take(active, 10, "b") == []
    assert take(active, 10)[0] == "b/5000"


def test_groups_that_move_leave_no_entries_behind() -> None:
    active = ActiveGroups()
    for number in range(10_000):
        active.put("a/g", entry("a", number)[1])
        active.put("b/g", entry("b", number % 7)[1])
    assert sum(map(len, active._heaps.values())) < 300
    assert take(active, 10) == ["b/g", "a/g"]
    assert take(active, 10) == []
    assert not active._heaps


def test_groups_put_back_at_their_position_cost_no_more_each_time() -> None:
    active, profile = ActiveGroups(), Profile(builtins=False)
    profile.enable()
    for _ in range(5):
        for number in range(1000):
            active.discard(entry("a", number)[0])
            active.put(*entry("a", number))
    profile.disable()
    assert sum(each.callcount for each in profile.getstats()) < 20 * 5 * 1000
    assert len(take(active, 2000)) == 1000


def test_an_edit_does_not_cost_a_namespace_its_turn() -> None:
    active = ActiveGroups()
    for number in range(100):
        active.put(*entry("flood", number, priority=1))
    for namespace in ("a", "b", "c"):
        active.put(*entry(namespace, 0))
    active.put("a/0", entry("a", 100)[1])
    assert [id_ for id_ in take(active, 5) if not id_.startswith("flood")] == ["a/0"]
