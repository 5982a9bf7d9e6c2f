"""Groups for which placement runs out of time: tried alone, in turn, for a share of time, without harm to others."""

from msgspec.structs import replace

from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved
from muster.coordinator.core.queue.turns import SLOW_SHARE, SlowGroups
from muster.gangs.solve import Explanation, SolveOutcome, SolveResult

SECONDS = 5.0


class SlowPlacement:
    """Runs out of time for every gang whose name begins with "slow"; the others it places. Time passes per solve."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.solves: list[tuple[float, list[str]]] = []
        """Time and gangs of each request."""
        self.seconds = 0.0
        """Time spent on slow gangs."""

    def answer_all(self, most: int = 1000) -> None:
        scenario = self.scenario
        for _ in range(most):
            if not scenario.under_way:
                return
            effect = scenario.under_way[0]
            if not isinstance(effect, Solve):
                scenario.do(0)
                continue
            names = [group.id.rpartition("/")[2] for group in effect.groups]
            self.solves.append((scenario.now, names))
            slow = [group for group in effect.groups if "slow" in group.id]
            if not slow:
                scenario.do(0)
                continue
            scenario.under_way.pop(0)
            scenario.now += SECONDS
            self.seconds += SECONDS
            results = {result.id: result for result in scenario.first_fit(effect)}
            for group in slow:
                about = Explanation("no placement was found within 5 s", group.gangs[0].id, "", 0, 1)
                results[group.id] = SolveResult(group.id, SolveOutcome.NOT_FOUND, explanation=about, out_of_time=True)
            scenario.tell(Solved(effect.solve_id, tuple(results[group.id] for group in effect.groups)))

    def run(self, seconds: float) -> None:
        """Answer all requests until so much time has passed."""
        scenario, until = self.scenario, self.scenario.now + seconds
        self.answer_all()
        while scenario.now < until:
            wake = scenario.leader.next_wake()
            if wake is None or wake > until:
                scenario.now = until
                return
            scenario.now = max(scenario.now, wake)
            scenario.wake()
            self.answer_all()

    def tries(self, name: str) -> list[float]:
        return [at for at, names in self.solves if name in names]


def with_gangs(*names: str) -> SlowPlacement:
    scenario = Scenario({"n": 100})
    scenario.lagging = True
    scenario.add(*(gang(name).of(2).created(index) for index, name in enumerate(names)))
    events, scenario.stream, scenario.lagging = scenario.stream, [], False
    scenario.tell(*events)
    return SlowPlacement(scenario)


def test_a_group_that_took_too_long_is_sent_alone_and_the_others_start() -> None:
    placement = with_gangs("a", "slow", "b")
    placement.run(20)
    assert [placement.scenario.bound(name) for name in ("a", "b")] == [2, 2]
    after = [names for at, names in placement.solves[1:] if "slow" in names]
    assert after
    assert all(names == ["slow"] for names in after)


def test_a_slow_group_whose_turn_has_come_shares_no_request_with_others() -> None:
    placement = with_gangs("slow", "slower")
    placement.run(3 * SECONDS)
    tries = len(placement.tries("slow")) + len(placement.tries("slower"))
    wake = placement.scenario.leader.next_wake()
    assert wake is not None
    placement.scenario.now = wake
    placement.scenario.add(gang("other").of(1))
    placement.answer_all()
    assert len(placement.tries("slow")) + len(placement.tries("slower")) == tries + 1
    assert [names for _, names in placement.solves if "other" in names] == [["other"]]


def test_a_group_with_a_place_is_not_slow_whatever_the_answer_says() -> None:
    scenario = Scenario({"n": 8})
    scenario.add(gang("g").of(2))
    solve = scenario.under_way.pop(0)
    assert isinstance(solve, Solve)
    results = tuple(replace(result, out_of_time=True) for result in scenario.first_fit(solve))
    scenario.tell(Solved(solve.solve_id, results))
    scenario.run()
    assert scenario.bound("g") == 2


def test_slow_groups_together_get_a_share_of_time_however_many_they_are() -> None:
    placement = with_gangs(*(f"slow{number}" for number in range(20)))
    placement.run(60)
    before = placement.seconds
    placement.run(1000)
    assert placement.seconds - before <= 1000 * SLOW_SHARE + 2 * SECONDS
    assert placement.seconds - before >= 1000 * SLOW_SHARE / 2


def test_every_slow_group_gets_its_turn() -> None:
    names = [f"slow{number}" for number in range(6)]
    placement = with_gangs(*names)
    placement.run(400)
    tries = [len(placement.tries(name)) for name in names]
    assert max(tries) - min(tries) <= 1
    assert min(tries) >= 2


def test_a_gang_that_arrives_among_slow_ones_waits_for_one_solve_at_most() -> None:
    placement = with_gangs(*(f"slow{number}" for number in range(10)))
    placement.run(100)
    placement.scenario.add(gang("quick").of(2).created(99))
    placement.run(2 * SECONDS)
    assert placement.scenario.bound("quick") == 2


def test_a_gang_that_changes_all_the_time_gets_no_more_turns() -> None:
    placement = with_gangs("slow", "slower")
    placement.run(60)
    before = placement.seconds
    for number in range(50):
        placement.scenario.add(gang("slow").of(3 + number))
        placement.run(2)
    assert placement.seconds - before <= 100 * SLOW_SHARE + 2 * SECONDS


def test_a_slow_gang_that_is_deleted_does_not_keep_its_turn() -> None:
    placement = with_gangs("slow0", "slow1", "slow2")
    placement.run(30)
    placement.scenario.delete(gang("slow1").of(2))
    placement.scenario.finish_deletions()
    tried = len(placement.tries("slow2"))
    placement.run(120)
    assert len(placement.tries("slow2")) > tried


def test_a_slow_gang_says_why_it_is_not_running() -> None:
    placement = with_gangs("slow")
    placement.run(20)
    assert "no placement was found within 5 s" in placement.scenario.progress("slow").reason


def test_turns_skip_groups_that_no_longer_wait() -> None:
    groups = SlowGroups()
    scenario = with_gangs("a", "b").scenario
    one, two = (scenario.gang(name).group for name in "ab")
    for each in (one, two):
        groups.wait(each, 1.0)
    assert groups.next_time() == 1.0
    assert groups.next_turn(0.5, lambda _: True) is None
    assert groups.next_turn(1.0, lambda id_: id_ == two.id) == two.id
    assert groups.next_time() is None


def test_namespaces_take_turns_with_their_slow_gangs() -> None:
    placement = with_gangs(*(f"slow{number}" for number in range(40)))
    placement.run(100)
    placement.scenario.add(gang("slow-single", "elsewhere").of(2).created(99))
    placement.run(5 * SECONDS)
    before = placement.scenario.now
    tried = len(placement.tries("slow-single"))
    assert tried >= 1
    placement.run(500)
    own = len(placement.tries("slow-single")) - tried
    others = sum(at > before for at, names in placement.solves if "slow" in names[0]) - own
    assert own >= others - 2
