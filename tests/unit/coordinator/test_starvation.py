"""A gang at the head of the queue that finds no place for too long gets capacity reserved, and starts (I8)."""

from builders.core.actions import ends
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.gangs.facts import PodPhase


def test_g47_a_gang_that_needs_the_whole_cluster_starts_under_an_endless_stream() -> None:
    scenario = Scenario({f"n{index}": 8 for index in range(4)})
    running: list[tuple[float, str]] = []
    count = 0

    def stream(seconds: float) -> None:
        """Gangs of 4 come for ever, each pod runs 6 to 14 s, and there is always one that waits."""
        nonlocal count
        until = scenario.now + seconds
        while scenario.now < until:
            waiting = [pod for pod in scenario.cluster.pods.values() if not pod.node and pod.name.startswith("s")]
            if len(waiting) < 8:
                count += 1
                scenario.add(gang(f"s{count}").of(4).created(int(scenario.now)))
            known = {uid for _, uid in running}
            for uid, pod in scenario.cluster.pods.items():
                if pod.node and pod.name.startswith("s") and uid not in known:
                    running.append((scenario.now + 6 + len(running) % 9, uid))
            for at, uid in running:
                if at <= scenario.now and scenario.cluster.pods[uid].phase is PodPhase.RUNNING:
                    ends(scenario, uid)
            scenario.pass_time(0.5)

    stream(20)
    scenario.add(gang("whole").of(32).created(int(scenario.now)))
    began = scenario.now
    while not scenario.bound("whole"):
        stream(1)
        assert scenario.now - began < 30 + 14 + 2, "starvationAfter, and the longest that runs"
    assert scenario.bound("whole") == 32


def test_gangs_that_end_in_time_may_backfill() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    runs = gang("runs").of(4).running_for(100)
    scenario.add(runs)
    scenario.run()
    scenario.add(gang("head").of(8).created(5))
    scenario.pass_time(31)
    assert scenario.leader.cache.nominations
    scenario.add(gang("short").of(2).running_for(30).created(40), gang("long").of(2).running_for(3000).created(39))
    scenario.run_effects()
    assert (scenario.bound("short"), scenario.bound("long")) == (2, 0)
    for pod in runs.pods():
        ends(scenario, pod.uid)
    scenario.run_effects()
    assert scenario.bound("head") == 0, "the short one still runs"
    for pod in [pod for pod in scenario.cluster.pods.values() if pod.gang.endswith("/short")]:
        ends(scenario, pod.uid)
    scenario.run_effects()
    assert scenario.bound("head") == 8
    assert scenario.bound("long") == 0


def test_gangs_that_fit_beside_the_reservation_start() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(gang("runs").of(6))
    scenario.run()
    scenario.add(gang("head").of(4, cpu=1).created(5))
    scenario.pass_time(31)
    (kept,) = scenario.leader.cache.nominations.values()
    assert sum(kept.capacity.values()) == 4
    scenario.change(nodes=[node("k", 1)])
    scenario.add_pods(plain_pod("p", age=50))
    scenario.run_effects()
    assert scenario.cluster.pods["default/p"].node == "k"


def test_where_it_can_start_soonest() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(gang("long").of(4).running_for(1000), gang("soon").of(4).running_for(60))
    scenario.run()
    soon = {pod.node for pod in scenario.cluster.pods.values() if pod.gang.endswith("/soon")}
    scenario.add(gang("head").of(4).created(5))
    scenario.pass_time(31)
    (kept,) = scenario.leader.cache.nominations.values()
    assert {name for name, _ in kept.capacity} == soon


def test_an_infeasible_gang_gets_no_reservation() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(2))
    scenario.run()
    scenario.add(gang("head").of(5).created(5))
    scenario.pass_time(100)
    assert not scenario.leader.cache.nominations
    solves = len(scenario.solves)
    scenario.pass_time(1000)
    assert len(scenario.solves) == solves
    scenario.add_pods(plain_pod("p", age=50))
    scenario.run_effects()
    assert scenario.cluster.pods["default/p"].node


def test_a_reservation_ends_when_its_gang_is_deleted() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(2))
    scenario.run()
    head = gang("head").of(4).created(5)
    scenario.add(head)
    scenario.pass_time(31)
    scenario.add_pods(plain_pod("p", age=50))
    scenario.run_effects()
    assert not scenario.cluster.pods["default/p"].node
    scenario.delete(head)
    scenario.run_effects()
    assert scenario.cluster.pods["default/p"].node
    assert not scenario.leader.cache.nominations


def test_capacity_is_reserved_elsewhere_when_its_node_is_removed() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(gang("a").of(4).running_for(1000), gang("b").of(4).running_for(50))
    scenario.run()
    scenario.add(gang("head").of(4).created(5))
    scenario.pass_time(31)
    (kept,) = scenario.leader.cache.nominations.values()
    ((lost, _),) = kept.capacity
    scenario.change(remove_nodes=[lost])
    scenario.run_effects()
    scenario.pass_time(62)
    (kept,) = scenario.leader.cache.nominations.values()
    assert lost not in {name for name, _ in kept.capacity}


def test_g50_equal_gangs_blocked_by_foreign_pods_are_not_solved_without_events() -> None:
    scenario = Scenario({"n": 8})
    for index in range(8):
        scenario.intrude(plain_pod(f"x{index}"), "n")
    scenario.add(*[gang(f"g{index:02}").of(4).created(index) for index in range(100)])
    scenario.run_effects()
    scenario.pass_time(5)
    solves = len(scenario.solves)
    scenario.pass_time(3600)
    assert len(scenario.solves) == solves


def test_i8_groups_behind_the_reservation_start_after_it() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(gang("a").of(4).running_for(100), gang("b").of(4).running_for(200))
    scenario.run()
    scenario.add(gang("first").of(8).created(5), gang("second").of(8).created(6))
    scenario.pass_time(100)
    asked = len(scenario.solves)
    scenario.pass_time(60)
    assert len(scenario.solves) == asked, "nothing has changed"
    for pod in [pod for pod in scenario.cluster.pods.values() if pod.node]:
        ends(scenario, pod.uid)
    scenario.run_effects()
    assert scenario.bound("first") == 8
    scenario.pass_time(2)
    (kept,) = scenario.leader.cache.nominations.values()
    assert kept.owner == "test/default/second"
