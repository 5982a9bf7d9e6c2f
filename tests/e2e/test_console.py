"""The console of a running cluster, in Chromium: every view with live data, and a gang from its first pod to its end.

--update-screenshots writes the pictures of docs/console.md.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from builders.console.browser import Page, chromium, needs_chromium
from builders.console.steps import gang_route, view
from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.manifests import Manifest, apply_manifests, load_manifests
from muster.localcluster.stack import API_SERVER, ETCD, Stack
from muster.localcluster.stack_options import StackOptions

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium()]

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "console"
MOST_BYTES = 150 * 1024
QUESTION = """\
apiVersion: batch/v1
kind: Job
metadata: {name: asked}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  template:
    metadata:
      labels: {pod-group.scheduling.sigs.k8s.io/name: asked, pod-group.scheduling.sigs.k8s.io/min-available: "2"}
    spec:
      schedulerName: muster
      restartPolicy: Never
      containers:
      - {name: main, image: registry.k8s.io/pause:3.10, resources: {requests: {cpu: "1"}}}
"""


@pytest_asyncio.fixture(loop_scope="session")
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with chromium(tmp_path) as page:
        yield page
        assert page.errors == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path_factory.mktemp("console"), console=True) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: Cluster) -> AsyncIterator[World]:
    world = World(cluster)
    yield world
    await world.clear()


async def test_a_gang_is_followed_from_its_first_pod_to_its_end(page: Page, world: World) -> None:
    url = world.cluster.stack.console_url
    await world.nodes(1)
    three = gang("three").of(3)
    await world.create(three, only=(0, 1))
    await view(page, url, gang_route(f"koordinator/{world.name}/three"))
    await page.shows("gathering", "2 of 3 members exist")
    await world.add_pods(three, 2)
    await page.shows("queued", "1 of 3 members fit", "What it lacks", "Why it does not fit")
    nodes = await world.nodes(1, 1)
    await world.bound(three)
    await page.shows(
        "satisfied", "3 exist, 3 bound", nodes[0], nodes[1], "permitted", "phase satisfied", "last pod runs"
    )
    await world.end_pods(three, 0, 1, 2)
    await page.shows("ended", "phase ended")
    await world.delete(three)
    await page.shows("There is no such gang")


async def test_a_preemption_is_shown_with_both_gangs(page: Page, world: World) -> None:
    """The victims take their time to end, as on a real cluster."""
    cluster, url = world.cluster, world.cluster.stack.console_url
    await world.nodes(2)
    low, high = gang("low").of(2), gang("high").of(2).with_priority(10)
    await world.create(low)
    await world.bound(low)
    paths = [f"/api/v1/namespaces/{world.name}/pods/{low.pod_name(number)}" for number in range(2)]
    for path in paths:
        await cluster.merge(path, {"metadata": {"finalizers": ["example.com/slow"]}})
    await view(page, url, "preemptions")
    await world.create(high)
    await page.shows(f"{world.name}/low", f"{world.name}/high", "the other has a higher priority; under way")
    for path in paths:
        await cluster.merge(path, {"metadata": {"finalizers": None}})
    await world.bound(high)
    await page.shows("the other has a higher priority; over")


async def test_the_page_reconnects_to_a_restarted_console(page: Page, world: World) -> None:
    stack = world.cluster.stack
    await world.nodes(1)
    await world.create(gang("before").of(2))
    await view(page, stack.console_url, "queue")
    await page.shows("before")
    await stack.kill("console")
    await page.shows("connecting again")
    await world.create(gang("after").of(2))
    await stack.start(["console"])
    await page.shows("before", "after")
    page.errors.clear()  # the browser reports the lost connection


async def test_the_loss_of_the_coordinator_is_shown(page: Page, world: World) -> None:
    stack = world.cluster.stack
    await view(page, stack.console_url, "")
    await page.shows("coordinator: connected", "leader: ")
    await stack.kill("coordinator")
    await page.shows("coordinator: not reachable", "no coordinator leads")
    await stack.start(["coordinator"])
    await page.shows("coordinator: connected", "leader: ")


# -- a cluster as `make up` starts it


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def busy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """60 nodes with GPUs in six racks, the examples, and training jobs that fill two thirds of it."""
    directory = tmp_path_factory.mktemp("busy")
    options = StackOptions(directory, nodes=60, racks=6, gpus_per_node=4, durable=False, console=True, forecast=True)
    stack = Stack(options)
    try:
        await stack.start([ETCD, API_SERVER])
        session = await KubeSession.connect(KubeSettings(kubeconfig=stack.kubeconfig))
        try:
            await apply_manifests(session, load_manifests(ROOT / "deploy" / "crds"))
            await stack.start()
            jobs = [gang(f"train-{number}").of(size).asking(cpu="5") for number, size in enumerate((16, 8, 8, 4, 2))]
            jobs += [gang(f"large-{number}").of(size).asking(cpu="6") for number, size in enumerate((40, 24))]
            await apply_manifests(session, [Manifest(pod) for job in jobs for pod in job.pods()])
            await apply_manifests(session, load_manifests(ROOT / "deploy" / "examples"))
        finally:
            await session.close()
        yield stack
    finally:
        await stack.stop()


@pytest.fixture
def picture(request: pytest.FixtureRequest, page: Page) -> Callable[[str], Awaitable[None]]:
    """Writes a picture of the page with --update-screenshots; else checks the one that there is."""
    update = request.config.getoption("--update-screenshots")

    async def take(name: str) -> None:
        file = PICTURES / f"{name}.png"
        if update:
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(await page.screenshot())
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size < MOST_BYTES

    return take


async def test_every_view_shows_live_data(page: Page, busy: Stack, picture: Callable[[str], Awaitable[None]]) -> None:
    url = busy.console_url
    await page.resize(1000, 620)
    await view(page, url, "")
    await page.until(r"/[1-9]\d* gang/.test(document.querySelector('.big')?.innerText ?? '')")
    await page.shows("60 nodes, 60 of them ready", "nvidia.com/gpu", "satisfied")
    await picture("overview")
    await view(page, url, "queue")
    await page.shows("large-1", "members fit", "typo", "not foreseen")
    await picture("queue")
    await view(page, url, gang_route("koordinator/default/large-1"))
    await page.shows("What it lacks", "Members: 24", "Timeline")
    await picture("gang")
    await view(page, url, "problems")
    await page.shows("typo", "min-available")
    await view(page, url, "whatif")
    await page.js(f"document.getElementById('manifest').value = {json.dumps(QUESTION)}")
    await page.js("document.querySelector('form.ask button').click()")
    await page.shows("It would start now on ", "Where it would run", "asked-0 (rank 0)")
    await page.js("document.getElementById('answer').scrollIntoView({block: 'end'})")
    await picture("whatif")
    await view(page, url, "map")
    await page.until("document.querySelector('canvas').dataset.cells === '60'")
    await page.js(
        "(tree => { tree.value = 'labels'; tree.dispatchEvent(new Event('change')); })(document.querySelector('#tree'))"
    )
    await page.shows("6 domains")
    await page.js("document.querySelector('canvas').focus()")
    await page.press("ArrowRight")
    await page.shows("cpu: ", "members in the whole cluster")
    await picture("map")
    await page.use_scheme("dark")
    await page.js("document.querySelector('#resource').dispatchEvent(new Event('change'))")
    await picture("map-dark")
    node = await page.js("document.querySelector('#tip a').hash")
    await view(page, url, node.removeprefix("#/"))
    await page.shows("Allocatable", "cpu", "pods")
    assert all(each.startswith((url, "about:")) for each in page.requests)
