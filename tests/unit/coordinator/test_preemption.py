"""Gang preemption: whole gangs, spare members first, nothing for nothing, and the room is the preemptor's (I9)."""

import pytest
from msgspec.structs import replace

from builders.core.actions import brought_back, crowded, end, evicted, full, places, until, until_planned
from builders.core.objects import gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Evict, Phase, Solve
from muster.coordinator.core.events import RecordState
from muster.gangs.facts import DisruptionBudget


def begin_eviction(story: Story) -> None:
    """Everything but the end of the pods."""
    story.run_effects()


def test_g43_one_gang_goes_rather_than_four_that_would_lose_a_member_each() -> None:
    four = [gang(name).of(4).created(index) for index, name in enumerate("abcd")]
    story = full(*four, gang("v").of(4).created(9), nodes={"n": 20})
    story.add(gang("p").of(4).priority(10).created(20))
    begin_eviction(story)
    assert len(evicted(story)) == 1
    end(story)
    assert story.bound("p") == 4
    assert sorted(story.bound(name) for name in "abcdv") == [0, 4, 4, 4, 4]


def test_g43_the_youngest_of_the_lowest_priority_goes() -> None:
    story = full(
        gang("old").of(2).created(1),
        gang("young").of(2).created(5),
        gang("middle").of(2).priority(5).created(9),
        nodes={"n": 6},
    )
    story.add(gang("p").of(2).priority(10).created(20))
    begin_eviction(story)
    assert evicted(story) == {"young"}


def test_g44_nothing_is_evicted_for_a_gang_that_can_never_fit() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    story.add(gang("p").of(5).priority(10))
    begin_eviction(story)
    story.pass_time(100)
    assert not evicted(story)
    assert any("nobody could be made to give way" in note for note in story.notes())


def test_g45_spare_members_go_first_and_the_gang_stays() -> None:
    story = full(gang("a").of(6).minimum(4).created(1), gang("b").of(2).created(9), nodes={"n": 8})
    story.add(gang("p").of(2).priority(10).created(20))
    begin_eviction(story)
    assert evicted(story) == {"a"}
    end(story)
    assert story.bound("p") == 2
    assert story.bound("a") == 4
    assert story.gang("a").phase is Phase.SATISFIED


def test_a_gang_that_was_on_its_way_when_it_was_asked_for_gives_way_once_it_is_seen_bound() -> None:
    story = crowded({"n": 4})
    story.lagging = True
    story.add(gang("v").of(4))
    story.deliver()
    bind = until(story, Bind)
    story.add(gang("p").of(4).priority(10))
    story.deliver()
    for effect in [effect for effect in story.under_way if effect is not bind]:
        story.do(story.under_way.index(effect))  # placement finds no room, and nobody to give way
    story.run_effects()
    assert not evicted(story)
    story.deliver()  # the pods are seen on their nodes
    story.run_effects()
    assert evicted(story) == {"v"}


def test_a_gang_that_may_be_evicted_only_whole_spares_nobody() -> None:
    whole = gang("a").of(6).minimum(4).evicted_whole().created(1)
    story = full(whole, gang("b").of(2).created(9), nodes={"n": 8})
    story.add(gang("p").of(2).priority(10).created(20))
    begin_eviction(story)
    assert evicted(story) == {"b"}
    end(story)
    assert (story.bound("p"), story.bound("a")) == (2, 6)


def test_g46_the_preemptor_goes_before_anything_is_evicted() -> None:
    victim = gang("a").of(4)
    story = full(victim, nodes={"n": 4})
    preemptor = gang("p").of(4).priority(10)
    story.add(preemptor)
    assert until_planned(story).puts[0].evicting
    story.delete(preemptor)
    story.run_effects()
    story.pass_time(10)
    assert not evicted(story)
    assert story.gang("a").phase is Phase.SATISFIED
    assert story.etcd[victim.id].state is RecordState.SATISFIED
    assert not story.etcd[victim.id].evicting
    assert set(story.etcd) == {victim.id}


def test_i9_nothing_is_evicted_before_that_is_durable() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10))
    until(story, Evict)
    assert story.etcd["test/default/a"].evicting
    assert story.etcd["test/default/p"].kept_room


def test_the_freed_room_is_the_preemptors() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).created(50))
    begin_eviction(story)
    story.add_pods(plain_pod("small"))
    story.finish_deletions()
    story.run_effects()
    assert story.bound("p") == 4
    assert not story.cluster.pods["default/small"].node


def test_others_are_scheduled_while_victims_go() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10))
    begin_eviction(story)
    story.change(nodes=[node("m", 1)])
    story.add_pods(plain_pod("small"))
    story.run_effects()
    assert story.cluster.pods["default/small"].node == "m"
    assert story.bound("p") == 0


def test_a_gang_that_was_evicted_starts_anew_as_a_whole() -> None:
    victim = gang("a").of(4)
    story = full(victim, nodes={"n": 4})
    preemptor = gang("p").of(4).priority(10)
    story.add(preemptor)
    begin_eviction(story)
    end(story)
    story.add_pods(*brought_back(victim))
    story.run_effects()
    story.change(nodes=[node("m", 3)])
    story.run_effects()
    assert story.bound("a") == 0, "it is a gang again, and does not start in part"
    story.delete(preemptor)
    story.run_effects()
    assert story.bound("a") == 4


@pytest.mark.parametrize("crash_after", range(8))
def test_a_crash_in_the_middle_of_a_preemption(crash_after: int) -> None:
    victim = gang("a").of(4)
    story = full(victim, nodes={"n": 4})
    story.add(gang("p").of(4).priority(10))
    for _ in range(crash_after):
        if story.under_way:
            story.do(0)
    story.crash()
    story.start()
    story.run_effects()
    end(story)
    story.pass_time(5)
    assert story.bound("p") == 4
    assert story.bound("a") == 0
    assert not story.leader.cache.kept


def test_a_crash_after_the_preemptor_went_evicts_nobody() -> None:
    victim = gang("a").of(4)
    story = full(victim, nodes={"n": 4})
    preemptor = gang("p").of(4).priority(10)
    story.add(preemptor)
    story.persist(until_planned(story))
    story.crash()
    story.delete(preemptor)
    story.start()
    story.run_effects()
    assert not evicted(story)
    assert story.gang("a").phase is Phase.SATISFIED
    assert not story.etcd[victim.id].evicting


def test_who_never_preempts_waits() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10).never_preempts())
    begin_eviction(story)
    story.pass_time(20)
    assert not evicted(story)


def test_equal_priority_is_no_reason() -> None:
    story = full(gang("a").of(4).priority(10), nodes={"n": 4})
    story.add(gang("p").of(4).priority(10))
    begin_eviction(story)
    assert not evicted(story)


def allow(story: Story, **budgets: int) -> None:
    story.change(budgets=[DisruptionBudget(f"default/{name}", allowed) for name, allowed in budgets.items()])


def test_what_a_disruption_budget_protects_stays() -> None:
    story = Story({"n": 4})
    story.graceful = True
    allow(story, b=1)
    story.add(gang("a").of(2).budget("default/b"), gang("c").of(2).created(-5))
    story.run_effects()
    story.add(gang("p").of(2).priority(10))
    begin_eviction(story)
    assert evicted(story) == {"c"}


def test_an_eviction_that_fails_is_tried_again() -> None:
    story = full(gang("a").of(2), nodes={"n": 2})
    for pod in story.cluster.pods.values():
        story.evict_failures[pod.uid] = 2
    story.add(gang("p").of(2).priority(10))
    begin_eviction(story)
    assert not evicted(story)
    story.pass_time(10)
    end(story)
    assert story.bound("p") == 2
    assert any("could not be evicted" in note for note in story.notes())


def test_a_waiting_gang_of_lower_priority_gives_its_reservations_up() -> None:
    story = Story({"n": 4})
    story.add(gang("w").of(5).non_strict())
    story.run()
    assert len(story.gang("w").seats) == 4
    story.add(gang("p").of(3).priority(10))
    story.pass_time(3)
    assert story.bound("p") == 3
    assert any("reservations: gang" in note for note in story.notes())


def test_the_preemptor_that_fits_elsewhere_meanwhile_takes_that() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    for pod in story.cluster.pods.values():
        story.evict_failures[pod.uid] = 100
    story.add(gang("p").of(4).priority(10))
    begin_eviction(story)
    story.change(nodes=[node("m", 4)])
    story.run_effects()
    assert story.bound("p") == 4
    assert not story.leader.cache.kept


def test_a_group_preempts_as_a_whole() -> None:
    story = full(gang("a").of(2).created(1), gang("b").of(2).created(2), nodes={"n": 4})
    story.add(
        gang("p").of(2).priority(10).with_group("default/p", "default/q"),
        gang("q").of(2).priority(10).with_group("default/p", "default/q"),
    )
    begin_eviction(story)
    end(story)
    assert places(story, "abpq") == {"a": 0, "b": 0, "p": 2, "q": 2}


def test_no_answer_about_victims_is_taken_that_the_ledger_does_not_bear_out() -> None:
    story = full(gang("a").of(4), nodes={"n": 4})
    honest = story.solver

    def lying(solve: Solve):  # type: ignore[no-untyped-def]
        results = honest(solve)
        if solve.potential_victims:
            return tuple(
                replace(result, victims=tuple(replace(each, pods=each.pods[:0]) for each in result.victims))
                for result in results
            )
        return results

    story.solver = lying
    story.add(gang("p").of(4).priority(10))
    begin_eviction(story)
    assert not evicted(story)
    assert not story.leader.cache.kept
