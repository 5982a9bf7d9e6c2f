"""cluster-state with an API server: subscribers of every replica see the same facts."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec.structs import replace

from builders.clusterstate.history import node_object, pod_group_object, pod_object, priority_class_object
from builders.clusterstate.mirror import Mirror, mirroring
from builders.clusterstate.service import QUICK, replica
from builders.kube.calls import KubeCalls
from builders.wait import eventually
from muster.clusterstate.recomputation import SLICE
from muster.clusterstate.service import ClusterStateService
from muster.clusterstate.settings import Settings
from muster.clusterstate.v1 import clusterstate_pb2, clusterstate_pb2_grpc
from muster.config.settings import KubeSettings
from muster.dialects.registry import timeout_annotations
from muster.gangs.facts import PodPhase
from muster.kube.malformed_objects import Reason
from muster.kube.metrics import MALFORMED
from muster.kube.session import ApiStatusError, KubeSession
from muster.rpc.channel import open_channel

CRD = Path(__file__).parents[3] / "deploy/crds/scheduling.x-k8s.io_podgroups.yaml"
LABEL = "scheduling.x-k8s.io/pod-group"
KOORDINATOR = "gang.scheduling.koordinator.sh/"

RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

Edit = Callable[[str], Awaitable[None]]


@pytest.fixture
async def mirror(config: KubeSettings, kube: KubeCalls) -> AsyncIterator[Mirror]:
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: True)
        yield mirror


async def health(port: int) -> Any:
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
        return answer.status


def budget(name: str, app: str, minimum: int = 0) -> dict[str, Any]:
    spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": name}, "spec": spec}


def koordinator(gang: str, minimum: object = "2") -> dict[str, str]:
    return {f"{KOORDINATOR}name": gang, f"{KOORDINATOR}min-available": str(minimum)}


async def test_what_is_there_is_in_the_snapshot(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("Node", node_object("n"))
    await kube.patch("Node", "n", {"status": node_object("n")["status"]}, part="/status")
    for number in range(3):
        await kube.create("Pod", pod_object(f"a-{number}", annotations=koordinator("g")))
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: True)
        assert set(mirror.names) == {"ml/a-0", "ml/a-1", "ml/a-2"}
        assert mirror.gangs["koordinator/ml/g"].minimum == 2
        assert dict(mirror.nodes["n"].allocatable)["cpu"] == 8000
        assert mirror.nodes["n"].ready


async def test_the_newest_revision_is_known_after_the_initial_lists(config: KubeSettings, kube: KubeCalls) -> None:
    for number in range(3):
        newest = await kube.create("Pod", pod_object(f"a-{number}"))
    await kube.create("Pod", pod_object("other", scheduler="default-scheduler"))
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: True)
        async with open_channel(f"127.0.0.1:{port}") as channel:
            stub = clusterstate_pb2_grpc.ClusterStateServiceStub(channel)
            answer = await stub.GetRevision(clusterstate_pb2.GetRevisionRequest(), timeout=30)
        assert answer.changed.kinds["pods"] == int(newest["metadata"]["resourceVersion"])


async def test_a_pods_life(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("Node", node_object("n"))
    created = await kube.create("Pod", pod_object("a"))
    await mirror.until(lambda: "ml/a" in mirror.names)
    assert mirror.changed["pods"] == int(created["metadata"]["resourceVersion"])
    await kube.bind("a", "n")
    await mirror.until(lambda: mirror.names["ml/a"].node == "n")
    await kube.patch("Pod", "a", {"status": {"phase": "Running"}}, part="/status")
    await mirror.until(lambda: mirror.names["ml/a"].phase is PodPhase.RUNNING)
    await kube.delete("Pod", "a", grace_seconds=30)
    await mirror.until(lambda: mirror.names["ml/a"].deleting)
    await kube.delete("Pod", "a")
    await mirror.until(lambda: not mirror.names)


async def test_a_nodes_life(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("Node", node_object("n"))
    await mirror.until(lambda: "n" in mirror.nodes)
    await kube.patch("Node", "n", {"spec": {"unschedulable": True}})
    await mirror.until(lambda: mirror.nodes["n"].unschedulable)
    await kube.delete("Node", "n")
    await mirror.until(lambda: not mirror.nodes)


async def test_revisions_rise_with_changes_that_are_not_sent(kube: KubeCalls, mirror: Mirror) -> None:
    other = await kube.create("Pod", pod_object("other", scheduler="default-scheduler"))
    await mirror.until(lambda: mirror.through["pods"] >= int(other["metadata"]["resourceVersion"]))
    assert not mirror.pods


async def test_g23_a_kind_is_followed_while_it_is_installed(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("Pod", pod_object("a", labels={LABEL: "g"}))
    await mirror.until(lambda: "coscheduling/ml/g" in mirror.gangs)
    assert mirror.gangs["coscheduling/ml/g"].blocked
    await kube.create("CustomResourceDefinition", yaml.safe_load(CRD.read_text()))
    await kube.served("PodGroup")
    await kube.create("PodGroup", pod_group_object("g", minimum=3))
    await mirror.until(lambda: mirror.gangs["coscheduling/ml/g"].minimum == 3)
    await kube.delete("CustomResourceDefinition", "podgroups.scheduling.x-k8s.io")
    await mirror.until(lambda: mirror.gangs["coscheduling/ml/g"].blocked)


async def test_g31_an_edited_minimum_is_told_without_any_pod_event(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("CustomResourceDefinition", yaml.safe_load(CRD.read_text()))
    await kube.served("PodGroup")
    await kube.create("PodGroup", pod_group_object("g", minimum=5))
    await mirror.until(lambda: "coscheduling/ml/g" in mirror.gangs)
    await kube.patch("PodGroup", "g", {"spec": {"minMember": 3}})
    await mirror.until(lambda: mirror.gangs["coscheduling/ml/g"].minimum == 3)
    await kube.delete("PodGroup", "g")
    await mirror.until(lambda: not mirror.gangs)


@pytest.mark.parametrize("minimum", [0, -1])
async def test_a_pod_group_with_an_impossible_minimum_waits_with_a_reason(
    kube: KubeCalls, mirror: Mirror, minimum: int
) -> None:
    await kube.create("CustomResourceDefinition", yaml.safe_load(CRD.read_text()))
    await kube.served("PodGroup")
    await kube.create("PodGroup", pod_group_object("g", minimum=minimum))
    await mirror.until(lambda: "coscheduling/ml/g" in mirror.gangs)
    gang = mirror.gangs["coscheduling/ml/g"]
    assert gang.blocked and str(minimum) in gang.problems[0].message


async def test_junk_in_annotations_is_harmless(kube: KubeCalls, mirror: Mirror) -> None:
    junk = {f"{KOORDINATOR}{key}": "\x00☃ {[" * 100 for key in ("name", "min-available", "groups", "mode")}
    await kube.create("Pod", pod_object("junk", annotations=junk))
    await kube.create("Pod", pod_object("large", annotations=koordinator("g") | {"large": "x" * 200_000}))
    await mirror.until(lambda: len(mirror.pods) == 2)
    assert mirror.names["ml/junk"].problem
    assert not mirror.names["ml/large"].problem


async def test_it_is_not_ready_before_all_lists_are_complete(config: KubeSettings, kube: KubeCalls) -> None:
    session = await KubeSession.connect(config)
    service = ClusterStateService(session, Settings(listen="127.0.0.1:0", kube=config), QUICK)
    port = await service.start()
    try:
        assert await health(port) == health_pb2.HealthCheckResponse.NOT_SERVING
        async with mirroring(port) as mirror:
            await mirror.until_disconnected()
            following = asyncio.create_task(service.follow())
            await mirror.until(lambda: True)
            assert await health(port) == health_pb2.HealthCheckResponse.SERVING
            following.cancel()
    finally:
        await service.stop()
        await session.close()


async def test_missed_changes_follow_after_an_outage(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("Pod", pod_object("stays"))
    await kube.create("Pod", pod_object("goes"))
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: len(mirror.pods) == 2)
        await kube.fault(method="GET", path_prefix="/api/v1/pods", status=503, count=6)
        await kube.lever("cut-watches")
        await kube.delete("Pod", "goes")
        await kube.create("Pod", pod_object("comes"))
        assert await health(port) == health_pb2.HealthCheckResponse.SERVING
        await mirror.until(lambda: set(mirror.names) == {"ml/stays", "ml/comes"})
        assert (mirror.snapshots, mirror.disconnected) == (1, 0)


async def test_expired_history_is_replaced_by_a_list(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("Pod", pod_object("stays"))
    await kube.create("Pod", pod_object("goes", annotations=koordinator("g")))
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: len(mirror.pods) == 2)
        await kube.fault(method="GET", path_prefix="/api/v1/pods", status=503, count=2)
        await kube.lever("cut-watches")
        await kube.delete("Pod", "goes")
        last = await kube.create("Pod", pod_object("comes"))
        await kube.lever("compact")
        await mirror.until(lambda: set(mirror.names) == {"ml/stays", "ml/comes"})
        await mirror.until(lambda: mirror.through["pods"] >= int(last["metadata"]["resourceVersion"]))
        assert not mirror.gangs
        assert mirror.snapshots == 1


async def test_bookmarks_raise_what_is_known(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("Pod", pod_object("a"))
    node = await kube.create("Node", node_object("n"))
    await mirror.until(lambda: "n" in mirror.nodes)
    await kube.lever("bookmarks")
    await mirror.until(lambda: mirror.through["pods"] >= int(node["metadata"]["resourceVersion"]))


async def test_priority_classes_count_where_admission_left_it_open(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("PriorityClass", priority_class_object("high", 1000))
    await kube.create("Pod", pod_object("a", priorityClassName="high"))
    await mirror.until(lambda: "ml/a" in mirror.names and mirror.names["ml/a"].priority == 1000)


async def test_budgets_cover_pods_whatever_comes_first(kube: KubeCalls, mirror: Mirror) -> None:
    for name, app in (("a", "web"), ("b", "db")):
        await kube.create("Pod", pod_object(name, labels={"app": app}))
    await mirror.until(lambda: set(mirror.names) == {"ml/a", "ml/b"})
    await kube.create("PodDisruptionBudget", budget("x", "web"))
    await mirror.until(lambda: mirror.names["ml/a"].budgets == ("ml/x",) and mirror.names["ml/b"].budgets == ())
    await kube.create("Pod", pod_object("c", labels={"app": "web"}))
    await mirror.until(lambda: "ml/c" in mirror.names and mirror.names["ml/c"].budgets == ("ml/x",))
    await kube.patch("PodDisruptionBudget", "x", {"spec": {"selector": {"matchLabels": {"app": "db"}}}})
    await mirror.until(
        lambda: {name: pod.budgets for name, pod in mirror.names.items()} == {"ml/a": (), "ml/b": ("ml/x",), "ml/c": ()}
    )
    await kube.delete("PodDisruptionBudget", "x")
    await mirror.until(lambda: not mirror.budgets and not mirror.names["ml/b"].budgets)


async def test_what_a_budget_allows_follows_its_status(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("Node", node_object("n"))
    for name in ("a", "b"):
        await kube.create("Pod", pod_object(name, labels={"app": "web"}))
        await kube.bind(name, "n")
        await kube.patch("Pod", name, {"status": RUNNING}, part="/status")
    await kube.create("PodDisruptionBudget", budget("x", "web", minimum=1))
    await mirror.until(lambda: "ml/x" in mirror.budgets and mirror.budgets["ml/x"].allowed == 1)
    await kube.delete("Pod", "a")
    await mirror.until(lambda: mirror.budgets["ml/x"].allowed == 0)


async def test_without_permission_budgets_are_skipped(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("Pod", pod_object("a", labels={"app": "web"}))
    await kube.create("PodDisruptionBudget", budget("x", "web"))
    await kube.fault(method="GET", path_prefix="/apis/policy", status=403, count=5)
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: "ml/a" in mirror.names)
        await mirror.until(lambda: mirror.names["ml/a"].budgets == ("ml/x",) and "ml/x" in mirror.budgets)
        assert mirror.snapshots == 1


async def test_g09_a_timeout_mark_is_seen_and_so_is_its_end(kube: KubeCalls, mirror: Mirror) -> None:
    await kube.create("Pod", pod_object("a", annotations=koordinator("g")))
    await mirror.until(lambda: "ml/a" in mirror.names)
    await kube.patch("Pod", "a", {"metadata": {"annotations": timeout_annotations("koordinator/ml/g", timed_out=True)}})
    await mirror.until(lambda: mirror.names["ml/a"].timed_out)
    await kube.patch(
        "Pod", "a", {"metadata": {"annotations": timeout_annotations("koordinator/ml/g", timed_out=False)}}
    )
    await mirror.until(lambda: not mirror.names["ml/a"].timed_out)
    assert mirror.gangs["koordinator/ml/g"].problems == ()


async def test_replicas_agree(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("CustomResourceDefinition", yaml.safe_load(CRD.read_text()))
    await kube.served("PodGroup")
    for number in range(4):
        await kube.create("Node", node_object(f"n-{number}"))
    async with replica(config) as (one, first), replica(config) as (other, second):
        async with mirroring(first) as mirror, mirroring(second) as other_mirror:
            await RandomEdits(kube, random.Random(7)).run(400)
            last = await last_changes(kube)
            for each in (mirror, other_mirror):
                await each.until(lambda each=each: all(each.through[kind] >= last[kind] for kind in last))  # type: ignore[misc]
            await eventually(lambda: content(one)[1] == content(other)[1])  # pods may be about to be told again
        assert content(one) == content(other)
        async with replica(config) as (late, port), mirroring(port) as late_mirror:
            await late_mirror.until(lambda: True)
            # A later replica cannot know which of several pods without a controller came first in its second.
            assert content(late, incarnations=False) == content(one, incarnations=False)
            assert late_mirror.gangs == late.state.gangs.facts
            assert late_mirror.pods == late.state.pods.facts
            assert late_mirror.budgets == late.state.budgets.facts
            assert late_mirror.nodes == late.state.nodes.facts


async def last_changes(kube: KubeCalls) -> dict[str, int]:
    """Change one object of each kind; returns the revisions."""
    created = {
        "pods": await kube.create("Pod", pod_object("last")),
        "nodes": await kube.create("Node", node_object("last")),
        "poddisruptionbudgets.policy": await kube.create("PodDisruptionBudget", budget("last", "last")),
        "podgroups.scheduling.x-k8s.io": await kube.create("PodGroup", pod_group_object("last")),
    }
    return {kind: int(each["metadata"]["resourceVersion"]) for kind, each in created.items()}


class RandomEdits:
    """Create, change and delete pods, gangs and nodes at random until cancelled."""

    def __init__(self, kube: KubeCalls, chance: random.Random) -> None:
        self._kube = kube
        self._chance = chance
        self._names = [f"p-{number}" for number in range(12)]

    async def run(self, edits: int) -> None:
        for _ in range(edits):
            of_pods: list[Edit] = [self._create, self._create, self._bind, self._finish, self._mark, self._delete]
            edit = self._chance.choice([*of_pods, self._group, self._node, self._budget])
            try:
                await edit(self._chance.choice(self._names))
            except ApiStatusError as error:
                assert error.status in (404, 409), error

    async def _create(self, name: str) -> None:
        gang = self._chance.choice(["g", "h"])
        annotations = self._chance.choice([koordinator(gang, self._chance.randint(0, 4)), {}])
        labels = self._chance.choice([{LABEL: gang}, {"app": gang}, {}])
        scheduler = self._chance.choice(["muster", "muster", "default-scheduler"])
        owner = self._chance.choice(["", "", "job-1", "job-2"])
        await self._kube.create(
            "Pod", pod_object(name, scheduler=scheduler, owner=owner, annotations=annotations, labels=labels)
        )

    async def _bind(self, name: str) -> None:
        await self._kube.bind(name, f"n-{self._chance.randrange(4)}")

    async def _finish(self, name: str) -> None:
        phase = self._chance.choice(["Running", "Succeeded", "Failed"])
        await self._kube.patch("Pod", name, {"status": {"phase": phase}}, part="/status")

    async def _mark(self, name: str) -> None:
        change = {f"{KOORDINATOR}min-available": self._chance.choice(["1", "3", "x", None])}
        await self._kube.patch("Pod", name, {"metadata": {"annotations": change}})

    async def _delete(self, name: str) -> None:
        await self._kube.delete("Pod", name, grace_seconds=self._chance.choice([0, 0, 30]))

    async def _group(self, _: str) -> None:
        name = self._chance.choice(["g", "h"])
        match self._chance.randrange(3):
            case 0:
                await self._kube.create("PodGroup", pod_group_object(name, minimum=self._chance.randint(-1, 4)))
            case 1:
                await self._kube.patch("PodGroup", name, {"spec": {"minMember": self._chance.randint(1, 9)}})
            case _:
                await self._kube.delete("PodGroup", name)

    async def _budget(self, _: str) -> None:
        name = self._chance.choice(["x", "y"])
        match self._chance.randrange(3):
            case 0:
                await self._kube.create("PodDisruptionBudget", budget(name, self._chance.choice("gh"), minimum=1))
            case 1:
                labels = {"app": self._chance.choice("gh")}
                await self._kube.patch("PodDisruptionBudget", name, {"spec": {"selector": {"matchLabels": labels}}})
            case _:
                await self._kube.delete("PodDisruptionBudget", name)

    async def _node(self, _: str) -> None:
        name = f"n-{self._chance.randrange(4)}"
        match self._chance.randrange(3):
            case 0:
                await self._kube.create("Node", node_object(name))
            case 1:
                await self._kube.patch("Node", name, {"spec": {"unschedulable": self._chance.random() < 0.5}})
            case _:
                await self._kube.delete("Node", name)


def content(service: ClusterStateService, *, incarnations: bool = True) -> Any:
    """All facts of a replica, by value."""
    state = service.state
    gangs = dict(state.gangs.facts)
    if not incarnations:
        gangs = {id_: replace(gang, incarnation="") for id_, gang in gangs.items()}
    return dict(state.nodes.facts), dict(state.pods.facts), gangs, dict(state.budgets.facts)


async def test_i12_a_change_that_concerns_many_pods_reaches_subscribers_in_slices(
    config: KubeSettings, kube: KubeCalls
) -> None:
    pods = [f"a-{number}" for number in range(2 * SLICE + 1)]
    for name in pods:
        await kube.create("Pod", pod_object(name, labels={"app": "x"}))
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: len(mirror.pods) == len(pods))
        await kube.create("PodDisruptionBudget", budget("b", "x"))
        await mirror.until(lambda: all(pod.budgets == ("ml/b",) for pod in mirror.pods.values()))
        await kube.delete("PodDisruptionBudget", "b")
        await mirror.until(lambda: not mirror.budgets)
        assert not any(pod.budgets for pod in mirror.pods.values()), "the budget is removed after the last pod names it"


async def test_facts_that_cannot_be_encoded_do_not_end_the_service(
    config: KubeSettings, kube: KubeCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: amounts are not cut to the range of their field."""
    monkeypatch.setattr("muster.kube.pod_requests.amount_of", lambda name, nanos, *, round_up: nanos * 10**6)
    counted = MALFORMED.labels("pod_classes", Reason.ENCODING.value)
    before = counted.value
    await kube.create("Pod", pod_object("listed", cpu="7777777"))
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: "cannot be sent" in mirror.names["ml/listed"].problem)
        await kube.create("Pod", pod_object("watched", cpu="7777778"))
        await kube.create("Pod", pod_object("sound", cpu="0.000000001"))
        await mirror.until(
            lambda: "ml/sound" in mirror.names and "cannot be sent" in mirror.names["ml/watched"].problem
        )
        assert mirror.classes[mirror.names["ml/watched"].class_id].required_node_affinity == ()
        assert mirror.names["ml/sound"].problem == ""
        assert (mirror.snapshots, mirror.disconnected) == (1, 0)
    assert counted.value >= before + 2
