"""What a leader's memory holds is handed out whole, and taken up whole by a machine that plays it forward."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from builders.core.objects import node, racks
from builders.forecast.random_clusters import BEGIN, CLASSES, RandomCluster, facts
from builders.forecast.solver import FirstFit
from builders.gangs.facts import gang
from muster.coordinator.core.term_state import (
    BudgetTermState,
    GangWithBindTrouble,
    PausedGroup,
    PreemptingGroup,
    PreemptionTermState,
    QueueTermState,
    SolveTermState,
    SpentBudget,
    TermState,
    TurnState,
    UnschedulableGroup,
)
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.player import Player
from muster.forecast.rules import rules_of
from muster.forecast.snapshot import Snapshot
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch, PodPhase

SEEDS = 150


async def known_by_a_leader(seed: int) -> Snapshot:
    stream, cluster = ClusterStream(VirtualCluster()), RandomCluster(seed)
    player = await cluster.leader(stream, FirstFit(stream), 0, lambda _now, _happening: None, overruns=True)
    return player.present(cluster.settings)


async def resumed(present: Snapshot) -> TermState:
    """The state of a machine that resumes with it, and has not decided anything since."""
    stream = ClusterStream(VirtualCluster())
    player = Player(
        await stream.copy_of(present.batch),
        FirstFit(stream),
        rules=rules_of(present.settings),
        now=present.unix_seconds,
        on_change=stream.change,
        observe=lambda _now, _happening: None,
        resumes=msgspec.json.decode(msgspec.json.encode(present.term_state), type=TermState),
    )
    stream.begin(player.cluster)
    await player.begin(present.records)
    return player.present(present.settings).term_state


def comparable(state: TermState) -> dict[str, Any]:
    """Without revisions, which are those of each cluster, and in an order of its own where order has no meaning."""
    found: dict[str, Any] = msgspec.to_builtins(state)
    del found["revision"]
    found["solves"]["unschedulable"] = sorted(found["solves"]["unschedulable"], key=lambda each: each["group"])
    for part in ("repairs", "short", "growth", "holds"):
        found[part] = sorted(found[part], key=lambda each: each["gang"])
    found["preemption"]["groups"] = sorted(found["preemption"]["groups"], key=lambda each: each["group"])
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_machine_that_resumes_has_the_same_state(seed: int) -> None:
    present = await known_by_a_leader(seed)

    assert comparable(await resumed(present)) == comparable(present.term_state)


async def test_random_clusters_have_state_of_most_kinds() -> None:
    states = [(await known_by_a_leader(seed)).term_state for seed in range(SEEDS)]

    assert any(state.nominations for state in states)
    assert any(state.backfill.groups for state in states)
    assert any(state.backfill.overran or state.backfill.unpaid_seconds for state in states)
    assert any(state.preemption.groups for state in states)
    assert any(state.preemption.tokens_at for state in states)
    assert any(state.solves.unschedulable for state in states)
    assert any(state.holds for state in states)
    assert any(state.growth for state in states)
    assert any(state.short for state in states)


def test_a_state_that_is_outdated_has_unschedulable_groups_tried_again() -> None:
    state = msgspec.json.decode(
        b'{"solves": {"unschedulable": [{"group": "a"}], "alone": ["b"]}, "revision": {"pods": 3}}', type=TermState
    )

    assert state.outdated().solves.unschedulable == ()
    assert state.outdated().solves.alone == ("b",)


async def test_pauses_slow_groups_and_bind_trouble_are_resumed() -> None:
    """Kinds of state that follow from failures, which do not happen to random clusters."""
    names = ("paused", "slow", "troubled", "preempting")
    added = [facts(gang(name).of(2, cpu=8).with_priority(5)) for name in names]
    full = facts(gang("full").of(1, cpu=8))
    seated = tuple(replace(pod, node="a", phase=PodPhase.RUNNING, started_seconds=1) for pod in full.pods)
    batch = Batch(
        pod_classes=CLASSES,
        nodes=(node("a", 8),),
        trees=(racks(),),
        gangs=(*full.gangs, *(each for some in added for each in some.gangs)),
        pods=(*seated, *(each for some in added for each in some.pods)),
    )

    def id_of(name: str) -> str:
        return f"test/default/{name}"

    later, (pod, _) = BEGIN + 100, added[2].pods
    state = TermState(
        queue=QueueTermState((PausedGroup(id_of("paused"), later, 3),), TurnState(), BEGIN - 1),
        solves=SolveTermState(
            (UnschedulableGroup(id_of("preempting"), proved=True),),
            (PausedGroup(id_of("slow"), later, 2, slow=True),),
            (id_of("preempting"),),
            later,
        ),
        preemption=PreemptionTermState(
            (
                PreemptingGroup(
                    id_of("preempting"),
                    not_before=later,
                    plans_in_vain=2,
                    gained_at=BEGIN - 50,
                    gained=((id_of("preempting"), 1),),
                    reservations_in_vain=3,
                    no_reservation_before=later,
                    due_at=later,
                    cautious=True,
                ),
            ),
            not_before=later,
            tokens=-3.5,
            tokens_at=BEGIN,
            reservation_is_next=True,
            requests=7,
            last_requests={"default": 6},
            budgets=BudgetTermState(BEGIN - 900, (SpentBudget("default", 2.5, BEGIN - 60),)),
        ),
        bind_trouble=(GangWithBindTrouble(id_of("troubled"), ("a",), ((pod.uid, 6),), later),),
    )

    found = await resumed(Snapshot(BEGIN, {"evictions-per-hour": "10"}, (), batch, state))

    assert found.queue.paused == state.queue.paused
    assert found.solves.slow == state.solves.slow
    assert found.solves.alone == state.solves.alone
    assert found.bind_trouble == state.bind_trouble
    assert [each for each in found.preemption.groups if each.group == id_of("preempting")] == [
        *state.preemption.groups,
    ]
    assert found.preemption.tokens == state.preemption.tokens
    assert found.preemption.budgets == state.preemption.budgets
    assert (found.preemption.requests, found.preemption.last_requests) == (7, {"default": 6})
