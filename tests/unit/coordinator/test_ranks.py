"""Ranks of members: by topology at the start, constant over crashes, reused when a member is gone."""

import pytest
from msgspec.structs import replace

from builders.core.actions import until, until_planned
from builders.core.objects import node, plain_pod, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Persist
from muster.coordinator.core.events import NotPersisted
from muster.gangs.facts import PodFacts, PodPhase


class Ranked(Scenario):
    """A scenario that remembers with which rank each pod was sent to binding last."""

    def __init__(self, nodes: dict[str, int]) -> None:
        self.sent: dict[str, int] = {}
        self.unranked: list[str] = []
        super().__init__(nodes)

    def take(self, effect: object) -> None:
        if isinstance(effect, Bind):
            for seat in effect.seats:
                if seat.uid in effect.ranks:
                    before = self.sent.setdefault(seat.uid, effect.ranks[seat.uid])
                    assert before == effect.ranks[seat.uid], f"{seat.uid} had rank {before}"
                else:
                    self.unranked.append(seat.uid)
        super().take(effect)  # type: ignore[arg-type]

    def by_rank(self) -> list[str]:
        """Names of the pods that are there, by rank."""
        there = [(rank, self.cluster.pods[uid].name) for uid, rank in self.sent.items() if uid in self.cluster.pods]
        return [name for _, name in sorted(there)]

    def nodes_by_rank(self) -> list[str]:
        by_name = {pod.name: pod.node for pod in self.cluster.pods.values()}
        return [by_name[name] for name in self.by_rank()]


def anew(pod: PodFacts) -> PodFacts:
    """The pod that its owner creates in its place."""
    return replace(pod, uid=f"{pod.uid}/new", node="", phase=PodPhase.PENDING)


def of_pods(built: CoreGang, *names: str) -> list[PodFacts]:
    """The gang's pods with these names."""
    return [replace(pod, name=name, uid=name) for pod, name in zip(built.pods(), names, strict=True)]


def test_p37_ranks_go_from_the_master_by_node_by_rack_and_by_name() -> None:
    scenario = Ranked({"a1": 2, "a2": 2, "b1": 4})
    scenario.change(trees=[racks(ra="a1 a2", rb="b1")])
    built = gang("job").of(8)
    names = ["job-master-0", *(f"job-worker-{index}" for index in range(7))]
    scenario.change(gangs=[built.gang_facts()], pods=of_pods(built, *names))
    scenario.run()
    assert scenario.by_rank() == names
    assert scenario.nodes_by_rank() == ["a1", "a1", "a2", "a2", "b1", "b1", "b1", "b1"]


def test_ranks_are_by_number_and_not_by_letter() -> None:
    scenario = Ranked({"a": 12})
    scenario.add(gang("g").of(12))
    scenario.run()
    assert scenario.by_rank() == [f"g-{index}" for index in range(12)]
    assert sorted(scenario.sent.values()) == list(range(12))


def test_one_alone_has_no_rank() -> None:
    scenario = Ranked({"a": 4})
    scenario.add_pods(plain_pod("p"))
    scenario.add(gang("one").of(1))
    scenario.run()
    assert scenario.sent == {}
    assert len(scenario.unranked) == 2


def test_a_recreated_member_gets_the_lowest_free_rank() -> None:
    scenario = Ranked({"a": 6})
    built = gang("g").of(6)
    scenario.add(built)
    scenario.run()
    pods = built.pods()
    scenario.change(remove_pods=[pods[4].uid, pods[2].uid])
    scenario.run()
    scenario.add_pods(anew(pods[4]))
    scenario.run()
    scenario.add_pods(anew(pods[2]))
    scenario.run()
    assert scenario.sent[anew(pods[4]).uid] == 2
    assert scenario.sent[anew(pods[2]).uid] == 4


def test_a_member_that_ended_leaves_its_rank_to_the_one_in_its_place() -> None:
    scenario = Ranked({"a": 6})
    built = gang("g").of(3)
    scenario.add(built)
    scenario.run()
    (_, failed, _) = built.pods()
    scenario.change(pods=[replace(scenario.cluster.pods[failed.uid], phase=PodPhase.FAILED)])
    scenario.add_pods(anew(failed))
    scenario.run()
    assert scenario.sent[anew(failed).uid] == 1


def test_later_members_get_the_next_ranks_by_name() -> None:
    scenario = Ranked({"a": 12})
    built = gang("g").needing(2).of(12)
    scenario.change(gangs=[built.gang_facts()], pods=built.pods()[:2])
    scenario.run()
    scenario.change(pods=built.pods()[2:])
    scenario.run()
    assert scenario.by_rank() == [f"g-{index}" for index in range(12)]


def test_i6_a_member_that_is_placed_again_keeps_its_rank() -> None:
    scenario = Ranked({"a": 2, "b": 4})
    scenario.change(trees=[racks(ra="a", rb="b")])
    built = gang("g").of(4)
    scenario.add(built)
    bind = until(scenario, Bind)
    before = dict(bind.ranks)
    lost = bind.seats[0]
    scenario.bind_failures[lost.uid] = 3
    scenario.change(nodes=[node("c", 4)])
    scenario.pass_time(60)
    assert scenario.bound("g") == 4
    assert scenario.sent == before


@pytest.mark.parametrize("done", range(6))
def test_i2_ranks_are_the_same_under_the_next_leader(done: int) -> None:
    """A crash after so many of the pods were bound."""
    scenario = Ranked({"a": 3, "b": 3})
    built = gang("g").of(6)
    scenario.add(built)
    bind = until(scenario, Bind)
    for seat in bind.seats[:done]:
        scenario.bind(seat)
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.bound("g") == 6
    assert sorted(scenario.sent.values()) == list(range(6))
    assert not scenario.unranked


def test_i2_members_bound_under_several_leaders_have_unique_ranks() -> None:
    scenario = Ranked({"a": 6})
    built = gang("g").needing(3).of(6)
    scenario.change(gangs=[built.gang_facts()], pods=built.pods()[:3])
    scenario.run()
    scenario.crash()
    scenario.start()
    scenario.change(pods=built.pods()[3:])
    until(scenario, Persist, lambda persist: any(record.seats for record in persist.puts))
    scenario.crash()
    scenario.start()
    scenario.run()
    assert sorted(scenario.sent.values()) == list(range(6))


def test_ranks_of_an_unwritten_permit_are_dropped() -> None:
    scenario = Ranked({"a": 6})
    built = gang("g").needing(2).of(3)
    scenario.change(gangs=[built.gang_facts()], pods=built.pods()[1:])
    persist = until(scenario, Persist)
    scenario.under_way.remove(persist)
    scenario.add_pods(built.pods()[0])
    scenario.tell(NotPersisted(persist.persist_id, "too large"))
    scenario.pass_time(1)
    assert scenario.by_rank() == ["g-0", "g-1", "g-2"]


def test_a_gang_that_starts_again_gets_new_ranks() -> None:
    scenario = Ranked({"a": 4})
    built = gang("g").of(4)
    scenario.add(built)
    scenario.run()
    scenario.delete(built)
    scenario.add(built.recreated("2"))
    scenario.run()
    assert scenario.by_rank() == ["g-0", "g-1", "g-2", "g-3"]


def test_claims_that_wait_for_a_node_go_with_the_bind() -> None:
    scenario = Ranked({"a": 4})
    built = gang("g").of(2)
    first, second = built.pods()
    scenario.change(gangs=[built.gang_facts()], pods=[replace(first, claims=("cache", "data")), second])
    assert until(scenario, Bind).claims == {first.uid: ("cache", "data")}


def test_claims_that_have_a_volume_by_now_do_not_go_with_the_next_bind() -> None:
    scenario = Ranked({"a": 4})
    built = gang("g").of(1)
    (pod,) = (replace(each, claims=("data",)) for each in built.pods())
    scenario.change(gangs=[built.gang_facts()], pods=[pod])
    assert until(scenario, Bind).claims == {pod.uid: ("data",)}
    scenario.bind_failures[pod.uid] = 1
    scenario.do(0)
    scenario.change(pods=[replace(pod, claims=())])
    scenario.now += 1
    scenario.wake()
    assert until(scenario, Bind).claims == {}
    scenario.run()
    assert scenario.bound("g") == 1


def test_a_gang_that_was_to_be_evicted_and_is_not_keeps_its_ranks() -> None:
    scenario = Ranked({"a": 4})
    scenario.graceful = True
    built = gang("g").needing(3).of(3)
    scenario.add(built)
    scenario.run()
    scenario.add(gang("p").of(4).with_priority(5))
    planned = until_planned(scenario)
    assert scenario.etcd["test/default/g"].ranks
    scenario.delete(gang("p").of(4))
    scenario.run()
    assert planned
    assert scenario.bound("g") == 3
    scenario.change(remove_pods=[built.pods()[1].uid])
    scenario.add_pods(anew(built.pods()[1]))
    scenario.run()
    assert scenario.sent[anew(built.pods()[1]).uid] == 1
    assert sorted(rank for _, rank in scenario.etcd["test/default/g"].ranks) == [0, 1, 2]


def asking(pods: list[PodFacts], *ranks: int) -> list[PodFacts]:
    """The pods with the ranks that they ask for; -1: none."""
    return [replace(pod, wanted_rank=rank) for pod, rank in zip(pods, ranks, strict=True)]


def test_members_get_the_ranks_that_they_ask_for_near_each_other() -> None:
    scenario = Ranked({"a": 1, "b": 1, "c": 1, "d": 1})
    scenario.change(trees=[racks(ra="a c", rb="b d")])
    built = gang("job").of(4)
    scenario.change(gangs=[built.gang_facts()], pods=asking(of_pods(built, "w", "x", "y", "z"), 3, 1, 2, 0))
    scenario.run()
    assert scenario.sent == {"w": 3, "x": 1, "y": 2, "z": 0}
    assert scenario.nodes_by_rank() == ["a", "c", "b", "d"]


def test_ranks_need_not_begin_at_zero_and_others_get_the_free_ones() -> None:
    scenario = Ranked({"n": 9})
    built = gang("job").of(5)
    pods = asking(of_pods(built, "a", "b", "c", "d", "e"), 7, -1, 7, 1, -1)
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    scenario.run()
    assert scenario.sent == {"a": 7, "d": 1, "b": 0, "c": 2, "e": 3}


def test_replaced_member_gets_the_rank_that_it_asks_for_again() -> None:
    scenario = Ranked({"n": 9})
    built = gang("job").of(4)
    pods = asking(built.pods(), 0, 1, 2, 3)
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    scenario.run()
    scenario.change(remove_pods=[pods[1].uid, pods[3].uid])
    scenario.change(pods=[anew(pods[3])])
    scenario.run()
    scenario.change(pods=[anew(pods[1])])
    scenario.run()
    assert (scenario.sent[anew(pods[3]).uid], scenario.sent[anew(pods[1]).uid]) == (3, 1)


def test_gang_of_one_gets_the_rank_that_it_asks_for() -> None:
    scenario = Ranked({"n": 9})
    built = gang("job").of(1)
    scenario.change(gangs=[built.gang_facts()], pods=asking(built.pods(), 4))
    scenario.run()
    assert list(scenario.sent.values()) == [4]
