"""Plans to make room whose ground shifts: before they are durable, and while their victims go (I9)."""

from msgspec.structs import replace

from builders.core.actions import (
    answered,
    end,
    evicted,
    full,
    held_back,
    is_plan,
    places,
    pods_of,
    reservations,
    until,
    until_planned,
)
from builders.core.objects import gang
from muster.coordinator.core.effects import Persist, Solve
from muster.coordinator.core.events import NotPersisted, Persisted, Snapshot, Solved, ViewLost
from muster.gangs.solve import SolveOutcome, SolveResult

# -- before the plan is durable


def test_i9_a_plan_that_is_too_small_by_now_is_not_carried_out() -> None:
    story = full(gang("v").of(4), nodes={"n": 4})
    p = gang("p").of(6).minimum(4).priority(10).created(5)
    story.add(p)
    until_planned(story)
    story.change(gangs=[p.minimum(6).gang_facts()])
    story.pass_time(5)
    assert not evicted(story), "p needs six by now"


def test_i9_a_preemptor_that_matters_no_more_than_its_victims_by_now_evicts_nobody() -> None:
    story = full(gang("v").of(4), nodes={"n": 4})
    p = gang("p").of(4).priority(10).created(5)
    story.add(p)
    until_planned(story)
    story.change(pods=[replace(pod, priority=0) for pod in p.pods()])
    story.pass_time(5)
    assert not evicted(story)


def test_i9_reservations_that_became_a_start_are_not_counted_on() -> None:
    waits = gang("w").of(3).created(1).non_strict()
    story = full(gang("v").of(2).created(2), nodes={"n": 4})
    story.add(waits)
    story.run_effects()
    assert reservations(story, "w") == {"w": 2}
    story.add(gang("p").of(4).priority(10).created(20))
    plan = held_back(story, Persist, is_plan)
    story.change(gangs=[waits.minimum(2).gang_facts()])  # it can start with what it holds
    story.persist(plan)
    until(story, Persist)
    story.tell(Persisted(plan.persist_id))
    story.run_effects()
    end(story)
    story.pass_time(60)
    end(story)
    running = places(story, "vwp")
    assert running in ({"v": 2, "w": 2, "p": 0}, {"v": 0, "w": 0, "p": 4}), "somebody went for nothing"


def test_i9_spare_members_that_are_spare_no_more_stay() -> None:
    """Others of the gang end by themselves before the plan is durable."""
    story = full(gang("v").of(6).minimum(4), nodes={"n": 6})
    story.add(gang("p").of(2).priority(10).created(5))
    until_planned(story)
    leaving = set(story.gang("v").eviction.pods)
    story.change(remove_pods=[pod.uid for pod in pods_of(story, "v") if pod.uid not in leaving][:2])
    story.run_effects()
    end(story)
    story.pass_time(5)
    assert places(story, "pv") == {"p": 2, "v": 4}, "two places came free by themselves"


def test_i9_a_victim_whose_minimum_rises_goes_whole_or_not_at_all() -> None:
    victim = gang("v").of(6).minimum(4)
    story = full(victim, nodes={"n": 6})
    story.add(gang("p").of(2).priority(10).created(5))
    until_planned(story)
    story.change(gangs=[victim.minimum(6).gang_facts()])
    story.run_effects()
    end(story)
    story.pass_time(5)
    assert places(story, "pv") == {"p": 2, "v": 0}


def test_i9_a_refused_plan_of_which_a_victim_ended_leaves_nobody_in_limbo() -> None:
    victim, preemptor = gang("v").of(4), gang("p").of(4).priority(10).created(5)
    story = full(victim, nodes={"n": 4})
    story.add(preemptor)
    until_planned(story)
    story.change(remove_pods=[victim.pods()[0].uid])
    story.delete(preemptor)
    story.pass_time(100)
    assert not story.gang("v").eviction.pods, "nobody sends these evictions"
    assert not story.etcd[victim.id].evicting, "nor does the next leader"


def test_i9_a_crash_with_a_plan_that_nobody_carried_out_evicts_nobody() -> None:
    """The plan is durable; then the preemptor goes, a victim ends by itself, and the leader dies."""
    victim, preemptor = gang("v").of(4), gang("p").of(4).priority(10).created(5)
    story = full(victim, nodes={"n": 4})
    story.add(preemptor)
    story.persist(until_planned(story))
    story.crash()
    story.delete(preemptor)
    story.change(remove_pods=[victim.pods()[0].uid])
    story.start()
    story.run_effects()
    assert not evicted(story)


def test_i9_on_a_view_that_is_lost_nobody_is_evicted() -> None:
    preemptor = gang("p").of(4).priority(10).created(5)
    story = full(gang("v").of(4), nodes={"n": 4})
    story.add(preemptor)
    plan = until_planned(story)
    story.tell(ViewLost("cluster-state is away"))
    story.lagging = True
    story.delete(preemptor)
    story.do(story.under_way.index(plan))
    story.run_effects()
    assert not evicted(story)
    story.lagging, story.stream = False, []
    story.tell(Snapshot(story.cluster.whole()))
    story.run_effects()
    assert not evicted(story), "the preemptor is gone"


def test_a_plan_that_cannot_be_written_is_not_made_again_without_end() -> None:
    story = full(gang("v").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).created(5))
    plans = 0
    while story.under_way and plans < 5:
        effect = story.under_way[0]
        if isinstance(effect, Persist) and is_plan(effect):
            plans += 1
            story.under_way.pop(0)
            story.tell(NotPersisted(effect.persist_id, "etcdserver: too many operations in txn request"))
        else:
            story.do(0)
    assert plans == 1, "without any time between"
    assert not evicted(story)


# -- while the victims go


def test_i9_an_answer_to_an_older_question_does_not_drop_the_room() -> None:
    story = full(gang("a").of(2).created(1), gang("b").of(2).created(2), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).created(20))
    story.run_effects()
    assert evicted(story) == {"a", "b"}
    story.change(remove_pods=[pod.uid for pod in pods_of(story, "a")])
    question = held_back(story, Solve)
    answer = answered(story, question)
    story.change(remove_pods=[pod.uid for pod in pods_of(story, "b")])
    story.add(gang("q").of(2).priority(20).created(30))
    story.tell(answer)
    story.pass_time(5)
    assert story.bound("p") == 4, "its victims went for nothing"


def test_i9_an_answer_that_nothing_was_found_in_time_does_not_give_the_room_away() -> None:
    story = full(gang("v").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).created(5))
    story.run_effects()
    assert evicted(story) == {"v"}
    story.finish_deletions()
    question = held_back(story, Solve)
    story.add(gang("q").of(2).priority(20).created(30))
    story.tell(Solved(question.solve_id, (SolveResult("test/default/p", SolveOutcome.NOT_FOUND),)))
    story.pass_time(20)
    assert story.bound("p") == 4, "q has the room for which v was evicted"


def test_i9_a_non_strict_preemptor_keeps_its_room_while_it_takes_it() -> None:
    story = full(gang("v").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).created(5).non_strict(6000))
    story.pass_time(3)
    assert evicted(story) == {"v"}
    story.change(remove_pods=[next(pod.uid for pod in pods_of(story, "v") if pod.deleting)])
    story.run_effects()
    story.add(gang("q").of(2).priority(20).created(30))
    end(story)
    story.pass_time(3)
    assert story.bound("p") == 4


def test_a_victim_pod_that_moves_to_another_gang_does_not_bind_the_plan_for_ever() -> None:
    story = full(gang("v").of(2), gang("u").of(2).created(-9), nodes={"n": 2, "m": 2})
    story.evict_failures.update({pod.uid: 3 for pod in pods_of(story, "v")})
    story.add(gang("p").of(2).priority(10).created(5))
    story.run_effects()
    assert story.gang("v").eviction.pods
    moved = pods_of(story, "v")[0]
    story.change(
        gangs=[gang("other").of(1).gang_facts()], pods=[replace(moved, gang="test/default/other", priority=100)]
    )
    for _ in range(2):
        story.pass_time(120)
        end(story)
    assert story.bound("p") == 2


def test_i9_reservations_that_another_plan_counts_on_are_not_counted_on_twice() -> None:
    story = full(gang("v").of(2).created(1), gang("x").of(2).created(2), nodes={"n": 6})
    story.add(gang("w").of(3).created(3).non_strict())
    story.run_effects()
    assert reservations(story, "w") == {"w": 2}
    story.add(gang("p").of(4).priority(10).created(20))
    plan = held_back(story, Persist, is_plan)
    story.add(gang("q").of(4).priority(9).created(21))
    story.run_effects()
    story.under_way.append(plan)
    story.run_effects()
    end(story)
    story.pass_time(60)
    end(story)
    running = places(story, "vxpq")
    assert running["p"] == 4
    assert running.pop("p") + sum(running.values()) == 6, "somebody went for nothing"


def test_nobody_is_woken_for_nothing_while_plans_are_carried_out() -> None:
    story = full(gang("v").of(3), nodes={"n": 6})
    story.add(gang("w").of(4).created(2).non_strict(40))
    story.run_effects()
    story.add(gang("p").of(4).priority(10).created(5), gang("s").of(6).created(6))
    in_vain = 0
    for _ in range(400):
        story.run_effects()
        wake = story.leader.next_wake()
        if wake is None:
            break
        in_vain = in_vain + 1 if wake <= story.now else 0
        assert in_vain < 5, f"it spins at {story.now}"
        story.now = max(story.now, wake)
        story.wake()


# -- over a change of leader


def test_i9_a_crash_while_victims_terminate_evicts_no_others() -> None:
    story = full(gang("old").of(4).created(1), gang("young").of(4).created(2), nodes={"n": 8})
    story.add(gang("p").of(4).priority(10).created(20))
    story.run_effects()
    assert evicted(story) == {"young"}
    story.crash()
    story.start()
    story.pass_time(2)
    assert evicted(story) == {"young"}


def test_i9_a_crash_while_spare_members_terminate_evicts_no_others() -> None:
    story = full(gang("a").of(6).minimum(2).created(1), gang("b").of(6).minimum(2).created(2), nodes={"n": 12})
    story.add(gang("p").of(4).priority(10).created(20))
    story.run_effects()
    going = {pod.uid for pod in story.cluster.pods.values() if pod.deleting}
    assert len(going) == 4
    story.crash()
    story.start()
    story.pass_time(2)
    assert {pod.uid for pod in story.cluster.pods.values() if pod.deleting} == going
