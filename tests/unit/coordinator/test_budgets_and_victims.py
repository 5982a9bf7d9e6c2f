"""Who goes for a more important gang, whom disruption budgets protect, and what becomes of those who went."""

from msgspec.structs import replace

from builders.core.actions import brought_back, crowded, end, evicted, full, places, pods_of, until, until_planned
from builders.core.objects import gang, node
from muster.coordinator.core.effects import Evict, Phase, Solve

# -- who goes


def test_two_preemptors_that_each_have_victims_start_both() -> None:
    story = full(gang("a").of(2).created(1), gang("b").of(2).created(2), nodes={"n": 4})
    story.add(gang("p").of(2).priority(10).created(20), gang("q").of(2).priority(9).created(21))
    story.run_effects()
    end(story)
    story.pass_time(5)
    end(story)
    assert places(story, "abpq") == {"a": 0, "b": 0, "p": 2, "q": 2}


def test_i7_a_lower_priority_of_what_runs_is_a_cause_to_ask_again() -> None:
    story = full(gang("v").of(4).priority(10), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).created(5))
    story.pass_time(5)
    assert not evicted(story)
    story.change(pods=[replace(pod, priority=0) for pod in pods_of(story, "v")])
    story.pass_time(100)
    assert evicted(story) == {"v"}


# -- disruption budgets


def test_a_budget_is_not_used_up_by_who_is_not_chosen() -> None:
    story = crowded({"n": 2, "m": 4}, b=2)
    story.add(gang("b").of(1, cpu=4).created(1).budget("default/b"))
    story.run_effects()
    story.add(gang("a").of(2).created(9).budget("default/b"))
    story.run_effects()
    assert places(story, "ab") == {"a": 2, "b": 1}
    story.add(gang("p").of(1, cpu=4).priority(10).created(20))
    story.run_effects()
    assert evicted(story) == {"b"}


def test_a_budget_is_counted_once_for_two_plans() -> None:
    """The second eviction would be refused, and its room kept for ever."""
    story = crowded({"n": 1, "m": 1}, b=1)
    story.add(*(gang(name).of(1).budget("default/b") for name in "ac"))
    story.run_effects()
    story.add(gang("p").of(1).priority(10).created(5), gang("q").of(1).priority(9).created(6))
    until_planned(story)
    while solves := [effect for effect in story.under_way if isinstance(effect, Solve)]:
        story.do(story.under_way.index(solves[0]))
    assert sum(len(kept.going) for kept in story.leader.cache.kept.values()) == 1
    story.run_effects()
    assert len(evicted(story)) == 1


def test_a_victim_that_cannot_be_evicted_any_more_does_not_bind_the_plan_for_ever() -> None:
    story = crowded({"n": 2, "m": 2}, b=2)
    story.add(gang("a").of(2).created(9).budget("default/b"), gang("c").of(2).created(1))
    story.run_effects()
    story.add(gang("p").of(2).priority(10).created(20))
    assert {pod.uid for pod in until(story, Evict).pods} == {pod.uid for pod in pods_of(story, "a")}
    story.set_budget("default/b", 0)
    story.pass_time(600)
    assert evicted(story) == {"c"}
    end(story)
    assert story.bound("p") == 2


# -- what becomes of victims


def test_i1_a_gang_that_comes_anew_while_the_old_one_goes_starts_whole_and_after_the_preemptor() -> None:
    old = gang("v").of(4)
    new = old.anew("2")
    story = full(old, nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).created(5))
    story.run_effects()
    assert evicted(story) == {"v"}
    story.change(remove_gangs=[old.id])
    story.add(new)
    story.change(nodes=[node("m", 3)])

    def started() -> int:
        return sum(1 for pod in new.pods() if story.cluster.pods[pod.uid].node)

    story.run_effects()
    assert (story.bound("p"), started()) == (0, 0)
    story.crash()
    story.start()
    story.run_effects()
    assert (story.bound("p"), started()) == (0, 0)
    end(story)
    assert (story.bound("p"), started()) == (4, 0)
    story.change(nodes=[node("m", 4)])
    story.run_effects()
    assert started() == 4


def test_a_strict_partner_of_a_victim_runs_on_and_the_victim_starts_again() -> None:
    built = {name: gang(name).of(2).with_group("default/a", "default/b") for name in "ab"}
    story = full(*built.values(), nodes={"n": 4})
    story.add(gang("p").of(2).priority(10).created(5))
    story.run_effects()
    (victim,) = evicted(story)
    end(story)
    partner = "b" if victim == "a" else "a"
    assert (story.bound("p"), story.bound(partner)) == (2, 2)
    story.add_pods(*brought_back(built[victim]))
    story.run_effects()
    story.crash()
    story.start()
    story.change(nodes=[node("m", 2)])
    story.run_effects()
    assert places(story, "abp") == {"a": 2, "b": 2, "p": 2}


def test_a_victim_that_others_bind_again_while_it_leaves_starts_anew() -> None:
    victim = gang("v").of(2)
    story = full(victim, nodes={"n": 2})
    story.evict_failures.update({pod.uid: 2 for pod in victim.pods()})
    story.add(gang("p").of(2).priority(10).created(5))
    story.run_effects()
    assert story.gang("v").eviction.whole
    story.add_pods(*brought_back(victim))
    story.change(nodes=[node("m", 1)])
    story.run_effects()
    story.shared_nodes.add("m")
    story.bind_elsewhere(brought_back(victim)[0].uid, "m")
    story.run_effects()
    story.crash()
    story.start()
    story.pass_time(30)
    end(story)
    story.pass_time(5)
    assert places(story, "pv") == {"p": 2, "v": 1}
    assert story.gang("v").phase is Phase.QUEUED
    assert not story.gang("v").permitted
