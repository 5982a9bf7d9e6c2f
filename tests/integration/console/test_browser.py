"""The console in Chromium: large clusters, hostile names, restarts, keyboard, sizes and contrast."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.console.browser import Page, chromium, needs_chromium
from builders.console.contrast import CONTRAST, DRAWN
from builders.console.guarded import OURS, THEIRS, Guarded
from builders.console.services import Services, cluster, console, gang, pod, services
from builders.console.steps import ask, gang_route, sign_in, view
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.forecast.v1 import forecast_pb2 as forecast_pb
from muster.gangs.facts import Batch, GangFacts, NodeFacts, Problem, Severity
from muster.rpc.watch_codec import batch_step

pytestmark = needs_chromium()

TRAIN = "koordinator/ml/train"
VIEWS = (
    *("", "queue", gang_route(TRAIN), "map", "namespaces", "preemptions", "problems"),
    *("node/node-0000", "whatif"),
)
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
LONG = "x" * 250
DRAWN_PAIRS = [
    *(["--used", "--surface"], ["--used", "--page"], ["--reserved", "--page"], ["--nominated", "--page"]),
    *(["--muted", "--page"], ["--muted", "--surface"], ["--accent", "--page"], ["--cell-0", "--cell-3"]),
]


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with chromium(tmp_path) as page:
        yield page
        assert page.errors == [], "the page has no errors, and violates no policy"


def busy(there: Services) -> None:
    """Gangs in several phases on eight nodes, with a preemption and a misdeclared gang."""
    warning = Problem(Severity.WARNING, 'mode "strict-ish" is not known: Strict is used')
    declared = GangFacts(TRAIN, "koordinator", "ml", "train", problems=(warning,))
    pods = (pod("train-0", TRAIN, on="node-0000"), pod("train-1", TRAIN))
    there.cluster.opens_with(cluster(8, pods, gangs=(declared,)), {})
    there.coordinator.put(
        gang(TRAIN, pb.PHASE_BINDING, reason="2 pods are pending", trace_id="ab12", reserved=1),
        gang("koordinator/ml/large", reason="gang ml/large cannot start: 3 of 8 members fit"),
        gang("coscheduling/web/late", pb.PHASE_TIMED_OUT),
        gang("coscheduling/web/done", pb.PHASE_SATISFIED),
    )
    there.coordinator.explanations[TRAIN] = pb.ExplainResponse(
        queue_position=2,
        ahead=["koordinator/ml/large"],
        would_help=["one more node"],
        members=[
            pb.Member(pod="ml/train-0", node="node-0000", state="bound"),
            pb.Member(pod="ml/train-1", reserved_node="node-0001", state="reserved"),
        ],
    )
    seat = {"uid": pods[1].uid, "namespace": "ml", "name": "train-1", "class_id": "small", "node": "node-0001"}
    there.coordinator.records = [
        {"gang": TRAIN, "incarnation": "1", "state": 1, "seats": [seat]},
        {"gang": "coscheduling/web/late", "incarnation": "1", "state": 3, "preempted_by": "koordinator/ml/large"},
    ]


async def overflow(page: Page) -> int:
    """Pixels by which the page is wider than the window."""
    return int(await page.js("document.documentElement.scrollWidth - innerWidth"))


async def test_a_map_of_5000_nodes_shows_gangs_and_changes(page: Page) -> None:
    async with services() as there:
        pods = tuple(pod(f"train-{number}", TRAIN, on=f"node-{number:04}") for number in range(0, 5000, 2))
        batch = cluster(5000, pods)
        racked = tuple(
            NodeFacts(
                each.name, allocatable=each.allocatable, labels={"zone": f"z{at // 1000}", "rack": f"r{at // 40}"}
            )
            for at, each in enumerate(batch.nodes)
        )
        there.cluster.opens_with(Batch(pod_classes=batch.pod_classes, nodes=racked, pods=pods, trees=batch.trees), {})
        async with console(there.settings()) as url:
            await view(page, url, "map")
            await page.until("document.querySelector('canvas').dataset.cells === '5000'")
            await page.shows("5,000 nodes, 5,000 usable; 125 domains", "37,500 members in the whole cluster")
            box = await page.js("(({x, y}) => [x, y])(document.querySelector('canvas').getBoundingClientRect())")
            await page.point_at(box[0] + 5, box[1] + 20 + 16 + 4)
            await page.shows("z0 / r0 / node-0000", "1 pod: ml/train (1)", "cpu: 7 of 8 free")
            there.cluster.send(batch_step(Batch(pods=(pod("more", "koordinator/ml/more", on="node-0000"),))))
            await page.shows("2 pods: ml/more (1), ml/train (1)", "cpu: 6 of 8 free")
            there.cluster.send(batch_step(Batch(removed_nodes=("node-4999",))))
            await page.shows("4,999 nodes")
            frames = await page.js(
                "new Promise((done) => { let n = 0; const began = performance.now();"
                "const frame = () => { n += 1; document.querySelector('#resource').dispatchEvent(new Event('change'));"
                "performance.now() - began < 1000 ? requestAnimationFrame(frame) : done(n); }; frame(); })"
            )
            drawn = await page.js("document.querySelector('canvas').dataset.drawMs")
            print(f"5,000 nodes: {frames} frames per second, {drawn} ms to draw")


@pytest.mark.parametrize("width", [375, 1600])
async def test_hostile_names_are_shown_as_text_and_fit(page: Page, width: int) -> None:
    await page.resize(width, 900)
    id_ = f"koordinator/ml/{HOSTILE}"
    async with services() as there:
        problem = Problem(Severity.BLOCKING, f"value {HOSTILE} is not a number")
        members = (pod(HOSTILE, id_, on=HOSTILE), pod(LONG, id_, on=HOSTILE))
        labels = {"rack": LONG, "zone": HOSTILE}
        hostile_node = NodeFacts(HOSTILE, allocatable=(("cpu", 8000), (HOSTILE, 3)), labels=labels)
        declared = GangFacts(id_, "koordinator", "ml", HOSTILE, problems=(problem,))
        batch = cluster(1)
        there.cluster.opens_with(
            Batch(
                pod_classes=batch.pod_classes,
                nodes=(hostile_node,),
                pods=members,
                trees=batch.trees,
                gangs=(declared,),
            ),
            {},
        )
        there.coordinator.put(
            gang(id_, reason=HOSTILE * 3, terms=[HOSTILE, LONG], trace_id="ab12"), gang(f"koordinator/{LONG}/{LONG}")
        )
        there.coordinator.explanations[id_] = pb.ExplainResponse(
            would_help=[HOSTILE, LONG], members=[pb.Member(pod=f"ml/{HOSTILE}", node=HOSTILE, state="bound")]
        )
        async with console(there.settings()) as url:
            quoted = await page.js(f"encodeURIComponent({json.dumps(id_)})")
            for route, text in (
                ("", "Utilisation"),
                ("queue", HOSTILE),
                (f"gang/{quoted}", f"ml/{HOSTILE}"),
                ("map", "1 node"),
                ("problems", problem.message),
                ("namespaces", "1 namespace with pods"),
                (f"node/{await page.js(f'encodeURIComponent({json.dumps(HOSTILE)})')}", "2 pods"),
            ):
                await view(page, url, route)
                await page.shows(text)
                assert await overflow(page) <= 0, route
            assert await page.js(
                "window.hacked === undefined && document.scripts.length === 1 && !document.images.length"
            )
            assert all(each.startswith((url, "about:")) for each in page.requests), page.requests


@pytest.mark.parametrize("width", [375, 1600])
async def test_a_question_is_asked_and_a_hostile_answer_shown_as_text(page: Page, width: int) -> None:
    await page.resize(width, 900)
    async with services() as there, console(there.settings(forecast=there.forecast_address)) as url:
        there.forecast.answer = forecast_pb.WhatIfResponse(
            verdict=forecast_pb.VERDICT_NEVER,
            pods=[forecast_pb.PlacedPod(pod=f"ml/{HOSTILE}", node=HOSTILE, rank=0)],
            preempts=[forecast_pb.PreemptedGang(gang=f"koordinator/ml/{HOSTILE}", pods=[LONG])],
            reason=HOSTILE,
            would_start_now_if=[LONG, "node n2 were uncordoned"],
            basis=forecast_pb.Basis(read_unix_millis=1_700_000_000_000),
        )
        await view(page, url, "whatif")
        await ask(page, f"{{kind: Pod, metadata: {{name: w}}, spec: {{schedulerName: {HOSTILE!r}}}}}")
        await page.shows("It would not start", HOSTILE, LONG, "node n2 were uncordoned")
        assert await overflow(page) <= 0
        assert await page.js("window.hacked === undefined && document.scripts.length === 1 && !document.images.length")
        await ask(page, "kind: [")
        await page.shows("manifest is not YAML")
        await view(page, url, "queue")
        await view(page, url, "whatif")
        assert await page.js("document.getElementById('manifest').value") == ""  # the page was loaded anew
    page.errors.clear()  # the browser reports the answer 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_what_a_reader_may_not_see_is_counted_with_enough_contrast(
    page: Page, guarded: Guarded, scheme: str
) -> None:
    await page.use_scheme(scheme)
    await page.resize(375, 900)
    there = guarded.services
    there.forecast.answer = forecast_pb.WhatIfResponse(
        verdict=forecast_pb.VERDICT_LATER,
        after_seconds=90.0,
        pods=[forecast_pb.PlacedPod(pod="ours/w", node="n1", rank=0)],
        preempts=[forecast_pb.PreemptedGang(gang=THEIRS, pods=["theirs/p"]) for _ in range(3)],
        after_the_ends_of=[THEIRS, OURS],
        reason=f"gang {THEIRS} is ahead",
        would_start_now_if=["disruption budget theirs/secret-project were no obstacle", "node n2 were not cordoned"],
        basis=forecast_pb.Basis(read_unix_millis=1_700_000_000_000),
    )
    async with console(guarded.settings.model_copy(update={"forecast": there.forecast_address})) as url:
        await page.open(f"{url}/#/whatif")
        await sign_in(page, "ann-token")
        await ask(page, "{apiVersion: v1, kind: Pod, metadata: {name: w, namespace: ours}, spec: {containers: []}}")
        await page.shows("It would start at about", "3 gangs of namespaces that you cannot read")
        await page.shows("1 gang of namespaces that you cannot read", "1 change of namespaces that you cannot read")
        await page.shows(
            "The reason is not shown: it names gangs of namespaces that you cannot read",
            "node n2 were not cordoned",
            "ours/train",
        )
        assert "secret" not in await page.js("document.documentElement.outerHTML")
        assert (await page.js(CONTRAST))["low"] == []
        assert await overflow(page) <= 0
    page.errors.clear()  # the browser reports the answer 401


async def test_expected_starts_are_in_the_queue_and_on_the_page_of_a_gang(page: Page) -> None:
    async with services() as there, console(there.settings(forecast=there.forecast_address)) as url:
        there.forecast.expected = forecast_pb.StartsResponse(
            gangs=[
                forecast_pb.ExpectedStart(
                    gang=TRAIN,
                    verdict=forecast_pb.VERDICT_LATER,
                    expected_unix_millis=4_000_000_000_000,
                    earliest_unix_millis=3_999_000_000_000,
                    latest_unix_millis=4_001_000_000_000,
                ),
                forecast_pb.ExpectedStart(gang="koordinator/ml/never", verdict=forecast_pb.VERDICT_NEVER),
            ],
            assumptions=forecast_pb.Assumptions(declared=2, unknown=1),
            basis=forecast_pb.Basis(read_unix_millis=1_700_000_000_000),
        )
        there.coordinator.put(gang(TRAIN), gang("koordinator/ml/never"))
        await view(page, url, "queue")
        await page.shows("not foreseen", "about 10/2/96", "of 3 running pods 2 declare how long they run")
        await view(page, url, gang_route(TRAIN))
        await page.shows("Expected start", "about 10/2/96", "nobody submits anything else")


async def test_changes_that_were_played_are_above_what_the_gang_lacks(page: Page) -> None:
    async with services() as there, console(there.settings(forecast=there.forecast_address)) as url:
        there.forecast.answers.clear()
        there.coordinator.put(gang(TRAIN))
        there.coordinator.explanations[TRAIN] = pb.ExplainResponse(would_help=["at least 2 more cpu"])
        await view(page, url, gang_route(TRAIN))
        await page.shows("Changes are being played on a copy of the cluster", "What it lacks", "at least 2 more cpu")
        there.forecast.answer = forecast_pb.WhatIfResponse(
            verdict=forecast_pb.VERDICT_NEVER,
            would_start_now_if=[HOSTILE],
            basis=forecast_pb.Basis(read_unix_millis=1_700_000_000_000),
        )
        there.forecast.answers.set()
        await page.shows("It would start now if", HOSTILE, "Each was played on a copy of the cluster as of")
        text = await page.text()
        assert text.index("It would start now if") < text.index("What it lacks")


async def test_usage_is_shown_by_namespace(page: Page) -> None:
    async with services() as there:
        busy(there)
        async with console(there.settings()) as url:
            await view(page, url, "namespaces")
            await page.shows("1 namespace with pods", "1 cpu, 1Gi memory")
            cells = "[...document.querySelectorAll('tbody td')].map((cell) => cell.innerText)"
            await page.until(f"{cells}[3] !== ''", "the reservation is read from the records")
            same = "1 cpu, 1Gi memory"
            assert await page.js(cells) == ["ml", "1", same, same, "1", same]
            there.cluster.send(batch_step(Batch(pods=(pod("other", "koordinator/web/other"),))))
            await page.shows("2 namespaces with pods", "web")


async def test_without_forecast_the_page_says_what_to_set(page: Page) -> None:
    async with services() as there, console(there.settings()) as url:
        there.coordinator.put(gang(TRAIN))
        await view(page, url, "whatif")
        await page.shows("The console has no service forecast")
        assert await page.js("document.querySelector('form.ask button').disabled")
        await view(page, url, "queue")
        await page.shows("train")
        assert "Expected start" not in await page.text()


async def test_the_page_reconnects_after_a_restart(page: Page) -> None:
    async with services() as there:
        settings = there.settings()
        there.coordinator.put(gang(TRAIN))
        async with console(settings) as url:
            await view(page, url, "queue")
            await page.shows("train")
        await page.shows("connecting again")
        there.coordinator.put(gang("koordinator/ml/meanwhile"))
        there.coordinator.remove(TRAIN)
        async with console(settings):
            await page.shows("meanwhile")
            await page.until("!document.body.innerText.includes('connecting again')")
            await page.until("!document.querySelector('table').innerText.includes('train')")
    page.errors.clear()  # the browser reports the lost connection


async def test_a_gang_is_followed_through_all_phases(page: Page) -> None:
    phases = [number for number in pb.Phase.values() if number]
    async with services() as there, console(there.settings()) as url:
        there.coordinator.put(gang(TRAIN, phases[0]))
        await view(page, url, gang_route(TRAIN))
        for number in phases:
            there.coordinator.put(gang(TRAIN, number))
            word = pb.Phase.Name(number).removeprefix("PHASE_").lower().replace("_", "-")
            await page.until(f"document.querySelector('main .phase')?.innerText === '{word}'")
        await page.shows("phase satisfied", "phase timed-out")
        there.coordinator.remove(TRAIN)
        await page.shows("There is no such gang")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_and_drawings_have_enough_contrast(page: Page, scheme: str) -> None:
    await page.use_scheme(scheme)
    async with services() as there:
        busy(there)
        async with console(there.settings()) as url:
            for route in VIEWS:
                await view(page, url, route)
                await page.until("document.querySelector('main').innerText.length > 60")
                found = await page.js(CONTRAST)
                assert found["checked"] > 8, route
                assert found["low"] == [], route
            assert await page.js(DRAWN.replace("PAIRS", json.dumps(DRAWN_PAIRS))) == []


@pytest.mark.parametrize("width", [375, 1600])
async def test_every_view_fits_narrow_and_wide_windows(page: Page, width: int) -> None:
    await page.resize(width, 800)
    async with services() as there:
        busy(there)
        async with console(there.settings()) as url:
            for route in VIEWS:
                await view(page, url, route)
                await page.until("document.querySelector('main').innerText.length > 60")
                assert await overflow(page) <= 0, route


async def test_the_keyboard_reaches_links_nodes_and_the_theme(page: Page) -> None:
    async with services() as there:
        busy(there)
        async with console(there.settings()) as url:
            await view(page, url, "")
            await page.shows("Utilisation")
            focused = []
            for _ in range(10):
                await page.press("Tab")
                focused.append(await page.js("document.activeElement.innerText.trim()"))
            assert focused[:7] == ["Skip to content", "Muster", "Overview", "Queue", "Map", "Namespaces", "Preemptions"]
            assert await page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            await page.press("Enter")
            await page.until("document.documentElement.dataset.theme === 'light'")
            await page.press("Enter")
            await page.until("document.documentElement.dataset.theme === 'dark'")
            await view(page, url, "map")
            await page.until("document.querySelector('canvas').dataset.cells === '8'")
            await page.js("document.querySelector('canvas').focus()")
            await page.press("ArrowRight")
            await page.shows("zone-0 / rack-0 / node-0000", "ml/train (1)")
            await page.press("ArrowRight")
            await page.press("ArrowRight")
            await page.shows("node-0001")
            await page.press("Enter")
            await page.until("location.hash === '#/node/node-0001'")
            await page.shows("Allocatable")


async def test_focus_stays_while_a_table_changes(page: Page) -> None:
    async with services() as there, console(there.settings()) as url:
        there.coordinator.put(gang(TRAIN), gang("koordinator/ml/z"))
        await view(page, url, "queue")
        await page.until("document.querySelectorAll('tbody tr').length === 2")
        await page.js("[...document.querySelectorAll('tbody a')].find((a) => a.innerText === 'train').focus()")
        there.coordinator.put(gang("koordinator/ml/first", priority=9), gang(TRAIN, reason="changed"))
        await page.shows("first", "changed")
        assert await page.js("document.activeElement.innerText") == "train"


async def test_people_sign_in_with_a_token(page: Page, guarded: Guarded) -> None:
    async with console(guarded.settings) as url:
        await page.open(f"{url}/#/queue")
        await sign_in(page, "wrong-token")
        await page.shows("does not accept the token")
        await sign_in(page, "ann-token")
        await page.shows("ann", "You see namespaces in which you may read pods: ours")
        await page.until("document.querySelectorAll('tbody tr').length === 1")
        assert THEIRS.rpartition("/")[2] not in await page.text()
        assert OURS.rpartition("/")[2] in await page.text()
        assert "ann-token" not in await page.js("document.documentElement.outerHTML")
        assert not any("ann-token" in request for request in page.requests)
        await view(page, url, "map")
        await page.shows("The map is for readers who may read pods in all namespaces")
