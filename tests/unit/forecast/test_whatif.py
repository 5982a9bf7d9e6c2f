"""What-if: what the coordinator's rules would do with gangs, now and later, on a copy of the cluster."""

import pytest
from msgspec.structs import replace

from builders.core.objects import node, plain_pod, pod_class, racks
from builders.forecast.solver import FirstFit
from builders.gangs.facts import gang
from muster.forecast.alternatives import alternatives, smaller, with_nodes_like, without_gang, without_node
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.snapshot import Snapshot
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import Answer, Forecaster, Verdict
from muster.gangs.facts import Batch, NodeFacts, PodFacts, PodPhase

NOW = 1_700_000_000.0
CLASSES = tuple(pod_class(cpu) for cpu in (1, 2, 4))
NOTHING = Batch()
WEEK = 7 * 86_400.0


def present(*nodes: NodeFacts, pods: tuple[PodFacts, ...] = (), gangs: Batch = NOTHING) -> Snapshot:
    batch = Batch(pod_classes=CLASSES, nodes=nodes, pods=(*pods, *gangs.pods), gangs=gangs.gangs, trees=(racks(),))
    return Snapshot(NOW, {}, (), batch)


def facts(builder: object) -> Batch:
    return Batch(pod_classes=CLASSES, gangs=(builder.gang_facts(),), pods=tuple(builder.pods()))  # type: ignore[attr-defined]


def running(batch: Batch, on: str, *, seconds: float = 0.0) -> Batch:
    pods = tuple(
        replace(pod, node=on, phase=PodPhase.RUNNING, started_seconds=int(NOW), expected_seconds=seconds)
        for pod in batch.pods
    )
    return replace(batch, pods=pods)


async def asked(cluster: Snapshot, question: Batch) -> Answer:
    stream = ClusterStream(VirtualCluster())
    forecaster = Forecaster(stream, FirstFit(stream))
    return await forecaster.ask(cluster, question, horizon_seconds=WEEK, limit_seconds=60)


async def test_a_gang_that_fits_starts_now() -> None:
    answer = await asked(present(node("a", 4)), facts(gang("g").needing(3).of(3)))

    assert answer.verdict is Verdict.NOW
    assert set(answer.nodes.values()) == {"a"}
    assert sorted(answer.ranks.values()) == [0, 1, 2]


async def test_a_gang_starts_when_others_are_expected_to_end() -> None:
    others = running(facts(gang("old").needing(3).of(3)), "a", seconds=600)
    answer = await asked(present(node("a", 4), gangs=others), facts(gang("g").needing(4).of(4)))

    assert answer.verdict is Verdict.LATER
    assert answer.after_seconds == pytest.approx(600, abs=5)
    assert answer.waits_for == ("test/default/old",)


async def test_a_gang_never_starts_beside_pods_of_which_the_end_is_unknown() -> None:
    others = running(facts(gang("old").needing(3).of(3)), "a")
    answer = await asked(present(node("a", 4), gangs=others), facts(gang("g").needing(4).of(4)))

    assert answer.verdict is Verdict.NEVER
    assert "member" in answer.reason


async def test_victims_are_named() -> None:
    others = running(facts(gang("old").needing(3).of(3)), "a")
    answer = await asked(present(node("a", 4), gangs=others), facts(gang("g").needing(4).of(4).with_priority(9)))

    assert answer.verdict is Verdict.NOW
    assert {name: len(pods) for name, pods in answer.victims.items()} == {"test/default/old": 3}


async def test_nothing_that_is_asked_changes_the_cluster() -> None:
    cluster = present(node("a", 4), pods=(replace(plain_pod("p"), node="a", phase=PodPhase.RUNNING),))
    question = facts(gang("g").needing(3).of(3))

    assert await asked(cluster, question) == await asked(cluster, question)


async def test_questions_follow_each_other() -> None:
    stream = ClusterStream(VirtualCluster())
    forecaster = Forecaster(stream, FirstFit(stream))
    question = facts(gang("g").needing(4).of(4))
    small, large = present(node("a", 3)), present(node("a", 3), node("b", 3))

    verdicts = [await forecaster.starts_now(each, question, 60) for each in (small, large, small)]

    assert verdicts == [False, True, False]


def test_the_cluster_is_changed_as_asked() -> None:
    others = running(facts(gang("old").needing(3).of(3)), "a")
    batch = present(node("a", 4), node("b", 4), gangs=others).batch

    assert not without_gang(batch, "test/default/old").pods
    assert [each.name for each in without_node(batch, "a").nodes] == ["b"]
    assert not without_node(batch, "a").pods
    assert [each.name for each in with_nodes_like(batch, "a", 2).nodes] == ["a", "b", "a-more-1", "a-more-2"]


def test_a_new_node_is_in_the_domain_of_its_like() -> None:
    batch = replace(present(node("a", 4), node("b", 4)).batch, trees=(racks(r0="a", r1="b"),))
    [tree] = with_nodes_like(batch, "b", 1).trees

    assert dict(tree.leaves) == {"a": 0, "b": 1, "b-more-1": 1}


async def test_alternatives_that_help_are_found_by_trying() -> None:
    cluster = present(node("a", 4), node("b", 4), gangs=running(facts(gang("old").needing(2).of(2)), "a"))
    question = facts(gang("g").needing(7).of(7))
    helping = []
    for each in alternatives(question, cluster.batch, {"low": -1, "high": 100}):
        answer = await asked(replace(cluster, batch=each.cluster), each.question)
        if answer.verdict is Verdict.NOW:
            helping.append(each.text)

    assert helping == ["there were one more node like a", "its priority class were high (100)"]
    assert (await asked(cluster, smaller(question, 6))).verdict is Verdict.NOW
