"""Streams of events: what a page gets first, what when something changes, and what is kept from it."""

import asyncio

import pytest

from builders.clusterstate.stream import ClusterStream
from builders.console.guarded import OURS, THEIRS, Guarded
from builders.console.services import cluster, console, events, gang, node, pod, services
from builders.wait import eventually
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.gangs.facts import Batch, GangFacts, Problem, Severity
from muster.rpc.watch_codec import batch_step

TRAIN = "koordinator/ml/train"


async def test_a_page_gets_all_rows_then_changed_ones() -> None:
    async with services() as there:
        there.coordinator.put(gang(TRAIN), gang("koordinator/ml/other"))
        async with console(there.settings()) as url, events(url, "feeds=gangs") as page:
            first = await page.until("gangs")
            while len(first["rows"]) < 2:  # the list of the coordinator may be complete later
                first = await page.until("gangs")
            assert {row["id"] for row in first["rows"]} == {TRAIN, "koordinator/ml/other"}
            there.coordinator.put(gang(TRAIN, pb.PHASE_BINDING, bound=2))
            changed = await page.until("gangs")
            assert (changed["reset"], [row["bound"] for row in changed["rows"]]) == (False, [2])
            there.coordinator.remove(TRAIN)
            assert (await page.until("gangs"))["removed"] == [TRAIN]


async def test_nodes_count_pods_reservations_and_nominations() -> None:
    async with services() as there:
        pods = (pod("a", TRAIN, on="node-0000"), pod("b", TRAIN))
        there.cluster.opens_with(cluster(2, pods), {})
        there.coordinator.put(gang(TRAIN, pb.PHASE_BINDING, bound=1))
        seat = {"uid": pods[1].uid, "namespace": "ml", "name": "b", "class_id": "small", "node": "node-0000"}
        nominated = [{"node": "node-0001", "class_id": "small", "count": 3}]
        there.coordinator.records = [
            {"gang": TRAIN, "incarnation": "1", "state": 1, "seats": [seat], "nominated": nominated}
        ]
        async with console(there.settings()) as url, events(url, "feeds=nodes") as page:
            rows: dict[str, dict[str, object]] = {}
            while not (rows.get("node-0000", {}).get("reserved") and rows.get("node-0001", {}).get("nominated")):
                rows.update((row["name"], row) for row in (await page.until("nodes"))["rows"])
        assert rows["node-0000"]["free"] == {"cpu": 6000, "memory": 30 << 30, "pods": 108}
        assert rows["node-0000"]["gangs"] == [[TRAIN, 1]]
        assert rows["node-0000"]["paths"] == {"racks": ["zone-0", "rack-0"]}
        assert rows["node-0001"]["nominated"] == {"cpu": 3000, "memory": 3 << 30, "pods": 3}
        assert rows["node-0001"]["free"] == {"cpu": 8000, "memory": 32 << 30, "pods": 110}


async def test_a_new_snapshot_replaces_the_cluster() -> None:
    async with services() as there:
        there.cluster.opens_with(cluster(3, (pod("a", TRAIN, on="node-0000"),)), {})
        async with console(there.settings()) as url, events(url, "feeds=nodes") as page:
            pods: dict[str, int] = {}

            async def until(expected: dict[str, int]) -> None:
                while pods != expected:
                    change = await page.until("nodes")
                    if change["reset"]:
                        pods.clear()
                    pods.update((row["name"], row["pods"]) for row in change["rows"])
                    for name in change["removed"]:
                        del pods[name]

            await until({"node-0000": 1, "node-0001": 0, "node-0002": 0})
            there.cluster.opens_with(cluster(2), {})
            there.cluster.cut()
            await until({"node-0000": 0, "node-0001": 0})


async def test_a_snapshot_of_many_nodes_is_sent_in_parts() -> None:
    async with services() as there:
        there.cluster.opens_with(cluster(1200), {})
        async with console(there.settings()) as url, events(url, "feeds=nodes") as page:
            parts = [await page.until("nodes")]
            while sum(len(part["rows"]) for part in parts) < 1200:
                parts.append(await page.until("nodes"))
            assert max(len(part["rows"]) for part in parts) == 500
            assert [part["reset"] for part in parts].count(True) == 1
            there.cluster.send(batch_step(Batch(removed_nodes=("node-0007",))))
            assert (await page.until("nodes"))["removed"] == ["node-0007"]


async def test_preemptions_are_listed_until_the_victim_starts_again_and_after() -> None:
    async with services() as there:
        victim, preemptor = gang("koordinator/ml/low"), gang("koordinator/ml/high", priority=10)
        there.coordinator.put(victim, preemptor)
        pods = [{"uid": f"{number}", "namespace": "ml", "name": f"p{number}"} for number in range(2)]
        evicted = {"gang": victim.id, "incarnation": "1", "state": 3, "evicting": pods, "evicted_for": preemptor.id}
        there.coordinator.records = [evicted]
        async with console(there.settings()) as url, events(url, "feeds=preemptions") as page:
            while not (rows := (await page.until("preemptions"))["rows"]):
                pass
            assert (rows[0]["victim"], rows[0]["preemptor"], rows[0]["pods"]) == (victim.id, preemptor.id, 2)
            assert rows[0]["under_way"]
            there.coordinator.records = []
            there.coordinator.put(gang("koordinator/ml/low", pb.PHASE_SATISFIED))
            [row] = (await page.until("preemptions"))["rows"]
            assert not row["under_way"]


async def test_declarations_and_pods_with_problems_are_listed() -> None:
    async with services() as there:
        warning = Problem(Severity.WARNING, 'mode "strict-ish" is not known: Strict is used')
        declared = GangFacts(TRAIN, "koordinator", "ml", "train", problems=(warning,))
        bad = pod("bad", TRAIN, problem="cpu: quantity <b>x</b> is not a number")
        there.cluster.opens_with(cluster(1, (bad,), gangs=(declared,)), {})
        async with console(there.settings()) as url, events(url, "feeds=problems") as page:
            rows = (await page.until("problems"))["rows"]
            while len(rows) < 2:
                rows += (await page.until("problems"))["rows"]
            assert {(row["subject"], row["blocking"], row["messages"][0]) for row in rows} == {
                (TRAIN, False, warning.message),
                (TRAIN, True, bad.problem),
            }


async def test_the_page_of_a_gang_has_members_with_ranks_and_its_timeline() -> None:
    async with services() as there:
        bound, pending = pod("train-0", TRAIN, on="node-0000"), pod("train-1", TRAIN)
        there.cluster.opens_with(cluster(1, (bound, pending)), {})
        there.coordinator.put(gang(TRAIN, pb.PHASE_BINDING, trace_id="ab12"))
        there.coordinator.explanations[TRAIN] = pb.ExplainResponse(
            queue_position=3,
            ahead=["koordinator/ml/first"],
            would_help=["one more node"],
            members=[
                pb.Member(pod="ml/train-0", node="node-0000", state="bound"),
                pb.Member(pod="ml/train-1", reserved_node="node-0000", state="reserved"),
            ],
        )
        ranks = [[bound.uid, 1], [pending.uid, 0]]
        there.coordinator.records = [
            {"gang": TRAIN, "incarnation": "1", "state": 1, "permitted_unix_millis": 1_700_000_050_000, "ranks": ranks}
        ]
        settings = there.settings(trace_url="http://jaeger.example/trace/{trace_id}")
        async with console(settings) as url, events(url, f"gang={TRAIN}") as page:
            found = await page.until("gang")
            while found.get("unavailable") or found.get("gone") or found["listed_members"][0]["rank"] is None:
                found = await page.until("gang")
        assert [(each["pod"], each["rank"]) for each in found["listed_members"]] == [
            ("ml/train-0", 1),
            ("ml/train-1", 0),
        ]
        assert found["listed_members"][0]["requests"]["cpu"] == 1000
        assert (found["queue_position"], found["ahead"]) == (3, ["koordinator/ml/first"])
        assert (found["lacks"], found["played"]) == (["one more node"], None)
        assert found["trace_url"] == "http://jaeger.example/trace/ab12"
        assert {"created", "permitted", "first pod runs", "phase binding"} <= {
            each["what"] for each in found["timeline"]
        }


async def test_many_viewers_of_a_gang_cost_one_explanation() -> None:
    async with services() as there:
        there.coordinator.put(gang(TRAIN))
        async with console(there.settings()) as url, asyncio.TaskGroup() as viewers:

            async def view() -> None:
                async with events(url, f"gang={TRAIN}") as page:
                    found = await page.until("gang")
                    while found.get("gone"):
                        found = await page.until("gang")
                    assert found["id"] == TRAIN

            for _ in range(10):
                viewers.create_task(view())
        assert there.coordinator.explained < 10


@pytest.mark.parametrize("subject", ["gang=koordinator/ml/none", "node=none"])
async def test_what_does_not_exist_is_said_to_be_gone(subject: str) -> None:
    async with services() as there, console(there.settings()) as url, events(url, subject) as page:
        assert "gone" in await page.until(subject.partition("=")[0])


async def test_the_overview_follows_gangs_nodes_and_starts() -> None:
    async with services() as there:
        there.cluster.opens_with(cluster(2, (pod("a", TRAIN, on="node-0000"),)), {})
        there.coordinator.put(gang(TRAIN), gang("koordinator/ml/old", created_seconds=1_600_000_000))
        async with console(there.settings()) as url, events(url, "overview=1") as page:
            found = await page.until("overview")
            while found["queued"] < 2 or not found["leader"] or found.get("nodes") != 2:
                found = await page.until("overview")
            assert (found["oldest"], found["oldest_created"]) == ("koordinator/ml/old", 1_600_000_000)
            assert found["utilisation"]["cpu"] == {"allocatable": 16000, "used": 1000, "reserved": 0}
            there.coordinator.put(gang(TRAIN, pb.PHASE_SATISFIED, bound=4))
            while sum(found["starts"]) != 1:
                found = await page.until("overview")
            assert found["phases"] == {"queued": 1, "satisfied": 1}
            there.cluster.send(batch_step(Batch(nodes=(node(2),))))
            while found["nodes"] != 3:
                found = await page.until("overview")


async def test_the_loss_of_a_service_is_shown() -> None:
    async with services() as there, console(there.settings()) as url, events(url, "overview=1") as page:
        found = await page.until("overview")
        while not all(source["connected"] for source in found["sources"].values()):
            found = await page.until("overview")
        await _refuse(there.cluster)
        while found["sources"]["cluster-state"]["connected"]:
            found = await page.until("overview")
        assert "cut by the test" in found["sources"]["cluster-state"]["detail"]


async def _refuse(stream: ClusterStream) -> None:
    """End the stream; new ones do not begin with a snapshot."""
    stream.opening = []
    await eventually(lambda: bool(stream.subscribers), "the console subscribes")
    stream.cut()


async def test_usage_of_a_namespace_follows_its_pods_and_reservations() -> None:
    async with services() as there:
        bound, pending = pod("train-0", TRAIN, on="node-0000"), pod("train-1", TRAIN)
        there.cluster.opens_with(cluster(1, (bound, pending)), {})
        there.coordinator.put(gang(TRAIN, pb.PHASE_BINDING))
        seat = {"uid": pending.uid, "class_id": pending.class_id, "node": "node-0000"}
        there.coordinator.records = [{"gang": TRAIN, "incarnation": "1", "state": 1, "seats": [seat]}]
        of_one = {"cpu": 1000, "memory": 1 << 30}
        async with console(there.settings()) as url, events(url, "feeds=usage") as page:
            rows: list[dict[str, object]] = []
            while not rows or rows[0]["reserved"] != of_one:
                rows = (await page.until("usage"))["rows"]
            assert rows == [
                {
                    "namespace": "ml",
                    "used": of_one,
                    "reserved": of_one,
                    "waiting": of_one,
                    "used_pods": 1,
                    "waiting_pods": 1,
                }
            ]
            there.cluster.send(batch_step(Batch(removed_pods=(bound.uid, pending.uid))))
            assert (await page.until("usage"))["removed"] == ["ml"]


async def test_readers_see_the_usage_of_their_namespaces(guarded: Guarded) -> None:
    there = guarded.services
    there.cluster.opens_with(cluster(1, (pod("a", OURS), pod("b", THEIRS, on="node-0000"))), {})
    async with console(guarded.settings) as url, events(url, "feeds=usage", "ann-token") as page:
        rows: list[dict[str, object]] = []
        while not rows:
            rows = (await page.until("usage"))["rows"]
        assert [(row["namespace"], row["waiting_pods"]) for row in rows] == [("ours", 1)]
