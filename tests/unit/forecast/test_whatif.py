"""What-if: what the coordinator's rules would do with gangs, now and later, on a copy of the cluster."""

import pytest
from msgspec.structs import replace

from builders.core.objects import node, plain_pod, pod_class, racks
from builders.forecast.solver import FirstFit
from builders.gangs.facts import gang
from muster.forecast.alternatives import changed_by, smaller, with_nodes_like, without_gang, without_node
from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.questions import Asked, BadQuestion
from muster.forecast.remedies import remedies
from muster.forecast.snapshot import Snapshot
from muster.forecast.virtual_cluster import VirtualCluster
from muster.forecast.whatif import Answer, Forecaster, Question, Verdict
from muster.gangs.facts import Batch, DisruptionBudget, NodeFacts, PodFacts, PodPhase

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


def forecasting() -> Forecaster:
    stream = ClusterStream(VirtualCluster())
    return Forecaster(stream, FirstFit(stream))


async def asked(cluster: Snapshot, question: Batch | Question) -> Answer:
    whole = question if isinstance(question, Question) else Question(question)
    return await forecasting().ask(cluster, whole, horizon_seconds=WEEK, limit_seconds=60)


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
    forecaster = forecasting()
    question = Question(facts(gang("g").needing(4).of(4)))
    small, large = present(node("a", 3)), present(node("a", 3), node("b", 3))

    verdicts = [await forecaster.starts_now(each, question, 60) for each in (small, large, small)]

    assert verdicts == [False, True, False]


def test_the_cluster_is_changed_as_asked() -> None:
    others = running(facts(gang("old").needing(3).of(3)), "a")
    batch = present(node("a", 4), node("b", 4), gangs=others).batch

    def after(change: Batch) -> Batch:
        return changed_by(batch, [change])

    assert not after(without_gang(batch, "test/default/old")).pods
    assert [each.name for each in after(without_node(batch, "a")).nodes] == ["b"]
    assert not after(without_node(batch, "a")).pods
    more = [each.name for each in after(with_nodes_like(batch, "a", 2)).nodes]
    assert more == ["a", "b", "a-more-1", "a-more-2"]


def test_a_new_node_is_in_the_domain_of_its_like() -> None:
    batch = replace(present(node("a", 4), node("b", 4)).batch, trees=(racks(r0="a", r1="b"),))
    [tree] = with_nodes_like(batch, "b", 1).trees

    assert dict(tree.leaves) == {"a": 0, "b": 1, "b-more-1": 1}


async def test_changes_that_help_are_found_by_trying() -> None:
    cluster = present(node("a", 4), node("b", 4), gangs=running(facts(gang("old").needing(2).of(2)), "a"))
    question = facts(gang("g").needing(7).of(7))

    found = await remedies(forecasting(), cluster, Question(question), {"low": -1, "high": 100}, 60)

    assert [each.text for each in found] == [
        "there were one more node like a",
        "its priority class were high (100)",
        "it had 6 members",
    ]
    assert (await asked(cluster, smaller(question, 6))).verdict is Verdict.NOW


async def test_gangs_ahead_get_what_a_change_frees() -> None:
    """Without the gang that runs, one that waits starts first."""
    old = running(facts(gang("old").needing(3).of(3)), "a")
    waiting = facts(gang("waiting").needing(3).of(3).created(1))
    both = Batch(pods=(*old.pods, *waiting.pods), gangs=(*old.gangs, *waiting.gangs))
    cluster = present(node("a", 4), gangs=both)
    added = facts(gang("g").needing(3).of(3).created(int(NOW)))
    question, replaces = Asked(added, without_gangs=("old",)).question(cluster.batch)

    assert replaces == []
    assert (await asked(cluster, question)).verdict is Verdict.NEVER


async def test_a_gang_that_exists_is_replaced_at_once() -> None:
    old = running(facts(gang("g").needing(3).of(3)), "a")
    waiting = facts(gang("waiting").needing(3).of(3).created(int(NOW)))
    both = Batch(pods=(*old.pods, *waiting.pods), gangs=(*old.gangs, *waiting.gangs))
    cluster = present(node("a", 4), gangs=both)
    question, replaces = Asked(facts(gang("g").needing(4).of(4).created(1))).question(cluster.batch)

    assert replaces == ["test/default/g"]
    assert (await asked(cluster, question)).verdict is Verdict.NOW


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"without_nodes": ("z",)}, 'there is no node "z"'),
        ({"without_gangs": ("nobody",)}, 'gang "nobody": there is no such gang'),
        ({"add_nodes": 1}, "nodes can be added that are like an existing one: name it"),
        ({"add_nodes": 1, "like": "z"}, 'there is no node "z"'),
        ({"add_nodes": 1_000_000, "like": "a"}, "1000000 nodes cannot be added: at most 10000"),
    ],
)
def test_a_question_about_what_does_not_exist_is_refused(changes: dict[str, object], message: str) -> None:
    added = facts(gang("g").needing(3).of(3))

    with pytest.raises(BadQuestion) as refused:
        Asked(added, **changes).question(present(node("a", 4)).batch)  # type: ignore[arg-type]

    assert str(refused.value) == message


async def said_to_help(cluster: Snapshot, name: str) -> list[str]:
    """What is said to help an existing gang."""
    question, _ = Asked(NOTHING, existing=name).question(cluster.batch)
    return [each.text for each in await remedies(forecasting(), cluster, question, {}, 60)]


async def test_an_existing_gang_is_asked_about_as_it_is() -> None:
    cluster = present(node("a", 2), gangs=facts(gang("g").of(4)))
    question, replaces = Asked(NOTHING, existing="default/g").question(cluster.batch)
    assert (question.added.pods, replaces) == (cluster.batch.pods, ["test/default/g"])
    assert (await asked(cluster, question)).verdict is Verdict.NEVER
    assert await said_to_help(cluster, "default/g") == ["there were one more node like a", "it had 2 members"]


async def test_a_gang_with_too_few_members_is_said_to_start_with_a_lower_minimum() -> None:
    cluster = present(node("a", 8), gangs=facts(gang("g").of(4).needing(9)))
    assert await said_to_help(cluster, "default/g") == ["its minimum were 4"]


async def test_too_few_members_that_do_not_fit_either_are_said_to_start_as_even_fewer() -> None:
    cluster = present(node("a", 3), gangs=facts(gang("g").of(4).needing(9)))
    assert await said_to_help(cluster, "default/g") == ["it had 3 members"]


async def test_an_existing_pod_without_marks_is_asked_about() -> None:
    cluster = present(node("a", 1), node("b", 2, unschedulable=True), pods=(plain_pod("p", 2),))
    assert await said_to_help(cluster, "plain/default/p") == [
        "node b were not cordoned",
        "there were one more node like b",
    ]


async def test_gangs_that_run_are_no_question() -> None:
    cluster = present(node("a", 4), gangs=running(facts(gang("g").of(2)), "a"))
    with pytest.raises(BadQuestion, match='gang "default/g" runs already'):
        Asked(NOTHING, existing="default/g").question(cluster.batch)


async def test_several_nodes_are_said_to_help_if_one_does_not() -> None:
    cluster = present(node("a", 2), gangs=facts(gang("g").of(8)))
    assert await said_to_help(cluster, "g") == ["there were 3 more nodes like a", "it had 2 members"]


async def test_preemption_that_is_prevented_is_said_to_help_if_it_were_not() -> None:
    low = running(facts(gang("low").of(4).with_budget("default/low")), "a")
    batch = present(node("a", 4), gangs=low).batch
    high = facts(gang("high").of(2).with_priority(10))
    protected = replace(
        batch,
        gangs=batch.gangs + high.gangs,
        pods=batch.pods + high.pods,
        budgets=(DisruptionBudget("default/low", 0),),
    )
    helping = await said_to_help(Snapshot(NOW, {}, (), protected), "high")
    assert "disruption budget default/low were no obstacle" in helping
    never = facts(gang("high").of(2).with_priority(10).never_preempting())
    unprotected = replace(batch, gangs=batch.gangs + never.gangs, pods=batch.pods + never.pods)
    unprotected = replace(unprotected, budgets=(DisruptionBudget("default/low", 4),))
    helping = await said_to_help(Snapshot(NOW, {}, (), unprotected), "high")
    assert "its preemption policy were PreemptLowerPriority" in helping
