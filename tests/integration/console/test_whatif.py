"""What-if in the console: who may ask what, what of the answer is shown to whom, and bad questions."""

import asyncio
from typing import Any

import aiohttp
import pytest

from builders.console.guarded import OURS, Guarded
from builders.console.services import Services, console, events, services
from builders.wait import eventually
from muster.console.forecast import MAX_AT_ONCE_OF_USER
from muster.forecast.v1 import forecast_pb2 as pb

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: w-0, namespace: {namespace}}}
spec: {{schedulerName: muster, containers: [{{name: main, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}
"""
ALIASES = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 22))
OTHERS = "koordinator/theirs/secret"


async def ask(url: str, question: dict[str, Any], token: str = "", **headers: str) -> tuple[int, dict[str, Any]]:
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/api/whatif", json=question, headers=sent | headers) as response,
    ):
        return response.status, await response.json()


def forecasting(there: Services, **settings: Any) -> Any:
    return console(there.settings(forecast=there.forecast_address, **settings))


async def test_a_question_is_answered_as_by_the_command() -> None:
    async with services() as there, forecasting(there) as url:
        there.forecast.answer = pb.WhatIfResponse(
            verdict=pb.VERDICT_LATER,
            after_seconds=90.0,
            pods=[pb.PlacedPod(pod="ml/w-0", node="n1", rank=0)],
            preempts=[pb.PreemptedGang(gang=OTHERS, pods=["theirs/p-0"])],
            would_start_now_if=["node n2 were uncordoned"],
            basis=pb.Basis(read_unix_millis=1_700_000_000_000, exact=True),
        )
        question = {"manifest": POD.format(namespace="ml"), "count": 3, "priority": 7, "topology": "rack: pack"}
        status, found = await ask(url, question | {"add_nodes": 2, "like": "n1"})
        assert (status, found["verdict"], found["at"], found["asked"]) == (200, "later", 1_700_000_090, 3)
        assert found["pods"] == [{"pod": "ml/w-0", "node": "n1", "rank": 0}]
        assert found["preempts"] == [{"gang": OTHERS, "pods": ["theirs/p-0"]}]
        assert found["would_start_now_if"] == ["node n2 were uncordoned"]
        [asked] = there.forecast.asked
        assert (asked.add_nodes, asked.like, asked.gangs.pods[0].priority) == (2, "n1", 7)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"manifest": "kind: ["}, "manifest is not YAML"),
        (
            {"manifest": "kind: ConfigMap\nmetadata: {name: a}"},
            "manifest: no pods, and no workload whose pods are known",
        ),
        (
            {"manifest": POD.format(namespace="ml").replace("spec: {", "spec: {priorityClassName: high, ")},
            "no PriorityClass is named 'high'",
        ),
        ({"manifest": ALIASES}, "more than 1000000 values, those of aliases included"),
        ({"manifest": "x" * 140_000}, "the manifests have more than 131072 bytes"),
        ({"manifest": POD.format(namespace="ml"), "count": 0}, "the number of pods is 0, but it must be 1 to 10000"),
        ({"manifest": POD.format(namespace="ml"), "add_nodes": 1}, "without the node that they are like: name it"),
        ({"manifest": POD.format(namespace="ml"), "priority": 2**31}, "which is not a number of 32 bits"),
        ({"manifest": POD.format(namespace="ml"), "colour": "red"}, "unknown field `colour`"),
        ({}, "missing required field `manifest`"),
    ],
)
async def test_a_bad_question_is_quoted(question: dict[str, Any], words: str) -> None:
    async with services() as there, forecasting(there) as url:
        status, found = await ask(url, question)
        assert status == 400
        assert words in found["error"]
        assert there.forecast.asked == []


async def test_without_the_service_the_console_says_what_to_set() -> None:
    async with services() as there, console(there.settings()) as url:
        status, found = await ask(url, {"manifest": POD.format(namespace="ml")})
        assert (status, "forecast.enabled" in found["error"]) == (501, True)


async def test_another_site_cannot_ask() -> None:
    async with services() as there, forecasting(there) as url:
        question = {"manifest": POD.format(namespace="ml")}
        assert (await ask(url, question, **{"Sec-Fetch-Site": "cross-site"}))[0] == 415
        async with aiohttp.ClientSession() as session, session.post(f"{url}/api/whatif", data=b"{}") as response:
            assert response.status == 415
        assert there.forecast.asked == []


async def test_readers_ask_for_their_namespaces_and_see_no_names_of_others(guarded: Guarded) -> None:
    there = guarded.services
    settings = guarded.settings.model_copy(update={"forecast": there.forecast_address})
    there.forecast.answer = pb.WhatIfResponse(
        verdict=pb.VERDICT_NOW,
        preempts=[pb.PreemptedGang(gang=OURS, pods=["ours/p"]), pb.PreemptedGang(gang=OTHERS, pods=["theirs/p-0"])],
        after_the_ends_of=[OTHERS],
        would_start_now_if=["gang theirs/secret were gone", "1 more node like n1, with 8 nvidia.com/gpu, existed"],
        reason="gang theirs/secret holds what it needs",
    )
    async with console(settings) as url:
        assert (await ask(url, {"manifest": POD.format(namespace="ours")}))[0] == 401
        status, found = await ask(url, {"manifest": POD.format(namespace="theirs")}, "ann-token")
        assert (status, found["error"]) == (403, 'you may not read pods in namespace "theirs"')
        assert there.forecast.asked == []
        status, found = await ask(url, {"manifest": POD.format(namespace="ours")}, "ann-token")
        assert status == 200
        assert "secret" not in str(found)
        assert [each["gang"] for each in found["preempts"]] == [OURS]
        assert (found["preempts_hidden"], found["ends_hidden"], found["changes_hidden"]) == (1, 1, 1)
        assert found["would_start_now_if"] == ["1 more node like n1, with 8 nvidia.com/gpu, existed"]
        status, found = await ask(url, {"manifest": POD.format(namespace="theirs")}, "root-token")
        assert (status, found["preempts_hidden"], found["reason"]) == (200, 0, "gang theirs/secret holds what it needs")


async def test_a_gang_of_another_namespace_cannot_be_replaced(guarded: Guarded) -> None:
    """A PodGroup without pods would take the place of the gang of its name."""
    there = guarded.services
    settings = guarded.settings.model_copy(update={"forecast": there.forecast_address})
    group = "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: secret, namespace: theirs}}"
    async with console(settings) as url:
        manifest = f"{POD.format(namespace='ours')}\n---\n{group}"
        status, found = await ask(url, {"manifest": manifest}, "ann-token")
        assert (status, found["error"]) == (403, 'you may not read pods in namespace "theirs"')
        listed = f"{{apiVersion: v1, kind: List, items: [{group}]}}\n---\n{POD.format(namespace='ours')}"
        assert (await ask(url, {"manifest": listed}, "ann-token"))[0] == 403
        assert (await ask(url, {"manifest": manifest}, "root-token"))[0] == 200
    assert len(there.forecast.asked) == 1


@pytest.mark.parametrize(
    ("text", "is_hidden"),
    [
        ("gang theirs/secret holds what it needs", True),
        ('"koordinator/theirs/secret"', True),
        ("it waits for ours/train,theirs/secret", True),
        ("disruption budgets ours/a, theirs/b were no obstacle", True),
        ("group.example.com/theirs/secret", True),
        ("2024/secret is ahead", True),
        ("gang ours/train needs nvidia.com/gpu: 3/8 fit", False),
        ("", False),
    ],
)
async def test_texts_that_name_gangs_of_others_are_left_out(guarded: Guarded, text: str, *, is_hidden: bool) -> None:
    there = guarded.services
    settings = guarded.settings.model_copy(update={"forecast": there.forecast_address})
    there.forecast.answer = pb.WhatIfResponse(verdict=pb.VERDICT_NEVER, reason=text, would_start_now_if=[text])
    async with console(settings) as url:
        _, found = await ask(url, {"manifest": POD.format(namespace="ours")}, "ann-token")
    assert (found["reason_hidden"], found["changes_hidden"]) == (is_hidden, int(is_hidden))
    assert (found["reason"], found["would_start_now_if"]) == (("", []) if is_hidden else (text, [text]))


async def test_pods_of_no_gang_that_end_before_are_named_by_their_ids(guarded: Guarded) -> None:
    there = guarded.services
    settings = guarded.settings.model_copy(update={"forecast": there.forecast_address})
    there.forecast.answer = pb.WhatIfResponse(verdict=pb.VERDICT_LATER, after_the_ends_of=["ours/a", "theirs/b"])
    async with console(settings) as url:
        _, found = await ask(url, {"manifest": POD.format(namespace="ours")}, "ann-token")
    assert (found["after_the_ends_of"], found["ends_hidden"]) == (["plain/ours/a"], 1)


async def test_a_user_asks_a_limited_number_of_questions_at_once() -> None:
    async with services() as there, forecasting(there) as url:
        question = {"manifest": POD.format(namespace="ml")}
        there.forecast.answers.clear()
        asking = [asyncio.create_task(ask(url, question)) for _ in range(MAX_AT_ONCE_OF_USER)]
        await eventually(lambda: len(there.forecast.asked) == MAX_AT_ONCE_OF_USER, "all are asked")
        status, found = await ask(url, question)
        assert (status, found["error"]) == (503, "2 questions of yours are being answered: wait for them")
        there.forecast.answers.set()
        assert [status for status, _ in await asyncio.gather(*asking)] == [200, 200]
        assert (await ask(url, question))[0] == 200


async def test_a_question_that_is_too_large_is_refused_without_reading_it() -> None:
    async with services() as there, forecasting(there) as url:
        assert (await ask(url, {"manifest": "x" * 2_000_000}))[0] == 413
        assert there.forecast.asked == []


async def test_only_readers_of_the_whole_cluster_see_how_many_pods_run(guarded: Guarded) -> None:
    there = guarded.services
    settings = guarded.settings.model_copy(update={"forecast": there.forecast_address})
    there.forecast.expected = pb.StartsResponse(
        gangs=[pb.ExpectedStart(gang=OURS, verdict=pb.VERDICT_NEVER), pb.ExpectedStart(gang=OTHERS)],
        assumptions=pb.Assumptions(declared=1234),
        basis=pb.Basis(read_unix_millis=1_700_000_000_000),
    )

    async def assumed(url: str, token: str) -> str:
        async with events(url, "feeds=starts", token) as page:
            while not (found := await page.until("forecast"))["assumption"]:
                pass
            return str(found["assumption"])

    async with console(settings) as url:
        assert "1234" in await assumed(url, "root-token")
        assert "1234" not in await assumed(url, "ann-token")
        async with events(url, f"gang={OURS}", "ann-token") as page:
            while not (found := await page.until("gang")).get("assumption"):
                pass
            assert "1234" not in str(found)
