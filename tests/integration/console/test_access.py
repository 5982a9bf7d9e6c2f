"""Readers see what the API server lets them read: TokenReview, SubjectAccessReview, and what is kept from others."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from builders.console.guarded import OURS, THEIRS, Guarded
from builders.console.services import cluster, console, events, gang, node, pod
from builders.kube.rbac import account, grant, rule, user
from builders.wait import eventually
from muster.config.settings import KubeSettings
from muster.console.access import ALLOWED_SECONDS, NotAuthenticated, NotReviewed, ReviewedAccess
from muster.console.state import HIDDEN
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.gangs.facts import Batch
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.access.users import AUTHENTICATED
from muster.rpc.watch_codec import batch_step


async def listed(url: str, token: str) -> set[str]:
    async with events(url, "feeds=gangs", token) as page:
        await page.until("gangs")
        async with events(url, "overview=1", token) as overview:
            while sum((await overview.until("overview"))["phases"].values()) == 0:
                pass
    async with events(url, "feeds=gangs", token) as page:
        return {row["id"] for row in (await page.until("gangs"))["rows"]}


async def test_people_see_gangs_of_namespaces_that_they_may_read(guarded: Guarded) -> None:
    async with console(guarded.settings) as url:
        assert await listed(url, "root-token") == {OURS, THEIRS}
        assert await listed(url, "ann-token") == {OURS}
        async with events(url, "feeds=gangs", "nobody-token") as page:
            assert (await page.until("session"))["namespaces"] == []
            assert (await page.until("gangs"))["rows"] == []


async def test_nothing_of_another_namespace_reaches_a_reader(guarded: Guarded) -> None:
    there = guarded.services
    there.cluster.opens_with(cluster(2, (pod("p", THEIRS, on="node-0000"),)), {})
    there.coordinator.explanations[OURS] = pb.ExplainResponse(ahead=[THEIRS], victims=[THEIRS], queue_position=2)
    evicting = {"gang": OURS, "incarnation": "1", "state": 3, "evicting": [], "evicted_for": THEIRS}
    there.coordinator.records = [evicting, {"gang": THEIRS, "incarnation": "1", "state": 3, "preempted_by": OURS}]
    feeds = "feeds=gangs,nodes,trees,problems,preemptions"
    async with console(guarded.settings) as url:
        assert await listed(url, "ann-token") == {OURS}
        async with events(url, feeds, "ann-token") as page:
            seen = [await page.until("preemptions")]
            while not seen[-1]["rows"]:
                seen.append(await page.until("preemptions"))
            assert [row["preemptor"] for row in seen[-1]["rows"]] == [HIDDEN]
            there.coordinator.remove(THEIRS)
            there.coordinator.put(gang(OURS, reserved=1))
            change = await page.until("gangs")
            assert (change["removed"], [row["id"] for row in change["rows"]]) == ([], [OURS])
        for name in ("nodes", "trees"):
            async with events(url, f"feeds={name}", "ann-token") as page:
                assert (await page.until(name))["rows"] == []
        for subject in (f"gang={THEIRS}", "node=node-0000"):
            async with events(url, subject, "ann-token") as page:
                assert (await page.until(subject.partition("=")[0])).keys() == {"gone"}
        async with events(url, f"gang={OURS}", "ann-token") as page:
            found = await page.until("gang")
            assert (found["ahead"], found["victims"]) == ([HIDDEN], [HIDDEN])
        async with events(url, "overview=1", "ann-token") as page:
            assert "utilisation" not in await page.until("overview")


async def test_a_new_namespace_is_reviewed(guarded: Guarded) -> None:
    async with console(guarded.settings) as url, events(url, "feeds=gangs", "ann-token") as page:
        await guarded.api.created("/api/v1/namespaces", {"metadata": {"name": "more"}})
        await grant(guarded.api, "more", rule("get", "pods"), to=user("ann"), namespace="more")
        guarded.services.coordinator.put(gang("koordinator/more/next"))
        ids: set[str] = set()
        while "koordinator/more/next" not in ids:
            ids |= {row["id"] for row in (await page.until("gangs"))["rows"]}
        assert THEIRS not in ids


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Bearer ", "Basic YTpi", "Bearer " + "x" * 7000])
@pytest.mark.parametrize("path", ["/api/session", "/api/events?feeds=gangs"])
async def test_without_a_valid_token_nothing_is_shown(guarded: Guarded, header: str, path: str) -> None:
    async with console(guarded.settings) as url, aiohttp.ClientSession() as session:
        headers = {"Authorization": header} if header else {}
        async with session.get(url + path, headers=headers) as answer:
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert (await answer.json()).keys() == {"error"}


async def test_tokens_are_not_logged(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    async with console(guarded.settings) as url, aiohttp.ClientSession() as session:
        for token in ("ann-token", "mistyped-token"):
            async with session.get(f"{url}/api/session", headers={"Authorization": f"Bearer {token}"}) as answer:
                await answer.read()
        await guarded.server.stop()
        async with session.get(f"{url}/api/session", headers={"Authorization": "Bearer other-token"}) as answer:
            assert answer.status == 503
    output = capsys.readouterr()
    assert "review_failed" in output.out + output.err
    assert "-token" not in output.out + output.err


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
async def reviewed(guarded: Guarded) -> AsyncIterator[tuple[ReviewedAccess, Clock]]:
    session = await KubeSession.connect(KubeSettings(kubeconfig=guarded.kubeconfig))
    clock = Clock()
    yield ReviewedAccess(session, clock), clock
    await session.close()


async def test_rights_are_reviewed_again_after_a_minute(
    guarded: Guarded, reviewed: tuple[ReviewedAccess, Clock]
) -> None:
    access, clock = reviewed
    ann = await access.user("ann-token")
    assert (ann.username, ann.groups) == ("ann", ("team-a", AUTHENTICATED))
    assert await access.readable(ann, ["ours", "theirs"]) == {"ours"}
    await guarded.api.call("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/ours/rolebindings/readers")
    assert await access.readable(ann, ["ours", "theirs"]) == {"ours"}
    clock.seconds += ALLOWED_SECONDS
    assert await access.readable(ann, ["ours", "theirs"]) == frozenset()


async def test_a_token_that_ends_is_rejected_after_a_minute(
    guarded: Guarded, reviewed: tuple[ReviewedAccess, Clock]
) -> None:
    access, clock = reviewed
    accounts = "/api/v1/namespaces/ours/serviceaccounts"
    await guarded.api.created(accounts, {"metadata": {"name": "robot"}})
    issued = await guarded.api.created(f"{accounts}/robot/token", {"spec": {}})
    token = issued["status"]["token"]
    await grant(guarded.api, "robot", rule("get", "pods"), to=account("ours", "robot"), namespace="ours")
    robot = await access.user(token)
    assert await access.readable(robot, ["ours"]) == {"ours"}
    await guarded.api.call("DELETE", f"{accounts}/robot")
    clock.seconds += ALLOWED_SECONDS
    with pytest.raises(NotAuthenticated, match="does not accept the token"):
        await access.user(token)


async def test_an_outage_of_the_api_server_grants_nothing(
    guarded: Guarded, reviewed: tuple[ReviewedAccess, Clock]
) -> None:
    access, _ = reviewed
    ann = await access.user("ann-token")
    await guarded.server.stop()
    with pytest.raises(NotReviewed):
        await access.sees_all(ann)


async def test_a_row_of_the_cluster_is_for_readers_of_the_cluster(guarded: Guarded) -> None:
    """Pods in all namespaces are not enough: the map also shows nodes."""
    await grant(guarded.api, "all-pods", rule("get", "pods"), to=user("nobody"))
    async with console(guarded.settings) as url, events(url, "feeds=nodes", "nobody-token") as page:
        assert not (await page.until("session"))["sees_all"]
        assert (await page.until("nodes"))["rows"] == []
        guarded.services.cluster.send(batch_step(Batch(nodes=(node(9),))))
        async with events(url, "feeds=nodes", "root-token") as other:
            await eventually(lambda: bool(guarded.services.cluster.subscribers))
            while not (await other.until("nodes"))["rows"]:
                pass
