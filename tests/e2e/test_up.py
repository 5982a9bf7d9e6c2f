"""`muster up` as a user runs it: everything starts, gangs reach their outcome, and no process is left."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from builders.docs.pages import blocks_of
from builders.e2e.kubectl_plugin import kubectl_muster
from muster.cli.endpoints import Endpoints, read_endpoints

pytestmark = pytest.mark.asyncio(loop_scope="session")

WAIT_SECONDS = 90
README = Path(__file__).parents[2] / "README.md"
EXAMPLES = README.parent / "deploy" / "examples"
PROCESSES = 11  # etcd, API server, kubelets, five services, the console, and forecast with a placement of its own

WRONG = """
apiVersion: v1
kind: Pod
metadata:
  name: giant
  annotations: {muster.dev/expect: bound}
spec:
  schedulerName: muster
  containers: [{name: main, image: x, resources: {requests: {cpu: "1000"}}}]
"""


class Up:
    """A running `muster up`."""

    def __init__(self, process: asyncio.subprocess.Process, state_directory: Path) -> None:
        self.process, self.state_directory = process, state_directory
        self.lines: list[str] = []

    @property
    def endpoints(self) -> Endpoints:
        found = read_endpoints(self.state_directory)
        assert found is not None
        return found

    async def says(self, words: str) -> None:
        """Wait until a line of its output contains the words."""
        assert self.process.stdout is not None
        if any(words in line for line in self.lines):
            return
        async with asyncio.timeout(WAIT_SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line)
                if words in line:
                    return
        raise AssertionError(f"it ended without saying {words!r}: {''.join(self.lines)}")

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextlib.asynccontextmanager
async def running_up(state_directory: Path, *arguments: str) -> AsyncIterator[Up]:
    process = await muster("up", "--state-dir", str(state_directory), *arguments, stderr=asyncio.subprocess.STDOUT)
    try:
        yield Up(process, state_directory)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), WAIT_SECONDS)


async def muster(*arguments: str, stderr: int = asyncio.subprocess.PIPE) -> asyncio.subprocess.Process:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        cwd=Path(__file__).parents[2],
        env=clean,
    )


async def ran(*arguments: str) -> tuple[int, str, str]:
    process = await muster(*arguments)
    out, err = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
    return process.returncode or 0, out.decode(), err.decode()


async def all_gone(processes: list[psutil.Process]) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, WAIT_SECONDS)
    assert not alive


async def test_examples_reach_their_expected_outcome_as_json(tmp_path: Path) -> None:
    code, out, err = await ran("up", "--once", "--output", "json", "--state-dir", str(tmp_path / "state"))
    assert code == 0, err
    gangs = {gang["name"]: gang for gang in json.loads(out)["gangs"]}
    assert all(gang["as_expected"] for gang in gangs.values())
    assert {gang["expected"] for gang in gangs.values()} == {"bound", "waiting"}
    assert gangs["resnet"]["bound"] == gangs["resnet"]["pods"] == 8
    assert gangs["resnet"]["seconds"] > 0
    assert gangs["whale"]["bound"] == 0
    assert gangs["whale"]["seconds"] is None


async def test_an_unexpected_outcome_of_an_example_fails(tmp_path: Path) -> None:
    manifest = tmp_path / "wrong.yaml"
    manifest.write_text(WRONG)
    arguments = ("--examples", str(manifest), "--once", "--output", "json", "--timeout", "3", "--nodes", "2")
    code, out, _ = await ran("up", "--state-dir", str(tmp_path / "state"), *arguments)
    assert code == 1
    [giant] = json.loads(out)["gangs"]
    assert not giant["as_expected"]
    assert "cpu" in giant["reason"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--cpu", "eight"), '--cpu: "eight" is not a quantity'),
        (("--memory", "0"), "--memory must be positive, not 0"),
        (("--examples", "nowhere.yaml"), "there is no file or directory nowhere.yaml"),
        (("--devices", "gpu:8@18-20"), '--devices: "gpu:8@18-20": there is no node 20; the last one is 19'),
    ],
)
async def test_invalid_options_are_rejected_before_anything_starts(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    code, _, err = await ran("up", "--state-dir", str(tmp_path / "state"), *arguments)
    assert code == 2
    assert complaint in err
    assert not (tmp_path / "state").exists()


async def test_up_restarts_crashed_processes_and_stops_cleanly(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with running_up(state, "--nodes", "20") as up:
        await up.says("koordinator/default/resnet satisfied, 8/8 bound")
        assert any(f"KUBECONFIG={up.endpoints.kubeconfig}" in line for line in up.lines)
        children = up.children()
        assert len(children) == PROCESSES

        code, out, _ = await ran("gangs", "--state-dir", str(state), "-o", "json")
        assert code == 0
        assert "resnet" in {gang["name"] for gang in json.loads(out)["gangs"]}

        asked = await kubectl_muster(tmp_path, "explain", "resnet", KUBECONFIG=up.endpoints.kubeconfig)
        assert asked.code == 0, asked.err
        assert "gang.scheduling.koordinator.sh/min-available: 8" in asked.out
        reported = await kubectl_muster(tmp_path, "topology", "-o", "json", KUBECONFIG=up.endpoints.kubeconfig)
        assert "labels" in {tree["name"] for tree in json.loads(reported.out)["trees"]}

        code, _, err = await ran("up", "--state-dir", str(state))
        assert code == 1
        assert f"another `muster up` (process {up.process.pid})" in err

        own = [child for child in children if child.ppid() == up.process.pid]
        victim = next(child for child in own if "placement" in child.cmdline())
        victim.kill()
        await up.says("placement was killed by SIGKILL; restarting in")

        children = up.children()
        up.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(up.process.wait(), WAIT_SECONDS) == 0
        await all_gone(children)
        assert read_endpoints(state) is None


async def test_the_readmes_first_gang_starts(tmp_path: Path) -> None:
    assert shutil.which("kubectl"), "kubectl is not installed: apt-get install kubernetes-client"
    (tmp_path / ".venv").symlink_to(sys.prefix)
    section = [each for each in blocks_of(README) if each.section == "A first gang"]
    first_gang = "".join(each.text for each in section if each.language == "console")
    [shown] = [each.text for each in section if each.language == "text"]
    async with running_up(tmp_path / ".muster", "--no-examples", "--nodes", "2") as up:
        await up.says("kubectl get nodes,pods")
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-e", "-o", "pipefail", "-c", first_gang),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=tmp_path,
        )
        output = (await asyncio.wait_for(shell.communicate(), WAIT_SECONDS))[0].decode()
    assert shell.returncode == 0, output
    described, _, rest = output.partition("pod/pair-1 created")
    assert "FailedScheduling" in described
    assert "1 of 2 members" in described
    assert shown in described
    assert "satisfied" in rest
    assert {"coordinator", "placement", "binding"} <= set(rest.split())


async def test_the_preemption_example_evicts_and_requeues_the_gang(tmp_path: Path) -> None:
    assert shutil.which("kubectl"), "kubectl is not installed: apt-get install kubernetes-client"
    alone = ("--nodes", "8", "--examples", str(EXAMPLES / "11-preemption.yaml"))
    async with running_up(tmp_path / "state", *alone) as up:
        await up.says("koordinator/default/urgent satisfied, 4/4 bound")
        up.lines.clear()
        await kubectl(up, "delete", "pod", "-l", "app=urgent", "--wait=false")
        await up.says("coscheduling/default/scavenger satisfied, 8/8 bound")
        up.lines.clear()
        await kubectl(up, "apply", "-f", str(EXAMPLES / "11-preemption.yaml"))
        await up.says("koordinator/default/urgent satisfied, 4/4 bound")
        events = await kubectl(up, "get", "events", "-o", "custom-columns=R:.reason,N:.note,M:.message")
        access = await kubectl(up, "get", "--raw", "/muster-access")
    assert "default/urgent" in next(line for line in events.splitlines() if line.startswith("Preempted"))
    assert [use for use in json.loads(access) if not use.get("allowed", True)] == []
    assert {use["user"] for use in json.loads(access)} >= {"muster-kubelets"}


async def test_nodes_have_devices_by_default(tmp_path: Path) -> None:
    assert shutil.which("kubectl"), "kubectl is not installed: apt-get install kubernetes-client"
    columns = "custom-columns=N:.spec.nodeName,D:.spec.devices[0].attributes.productName.string"
    async with running_up(tmp_path / "state", "--no-examples") as up:
        await up.says("kubectl get nodes,pods")
        classes = await kubectl(up, "get", "deviceclasses", "-o", "name")
        slices = await kubectl(up, "get", "resourceslices", "--no-headers", "-o", columns)
        cliques = await kubectl(up, "get", "nodes", "-l", "nvidia.com/gpu.clique", "-o", "name")
        await kubectl(up, "apply", "-f", str(EXAMPLES / "24-device-claims.yaml"))
        await kubectl(up, "wait", "--for=condition=PodScheduled", "--timeout=60s", "pods", "--all")
        claims = await kubectl(up, "get", "resourceclaims", "--no-headers")
        access = await kubectl(up, "get", "--raw", "/muster-access")
    assert [each.rpartition("/")[2] for each in classes.split()] == ["gpu.example.com", "mig.example.com"]
    products = [each.split(maxsplit=1) for each in slices.splitlines()]
    assert {node for node, _ in products} == {f"node-{index}" for index in range(10, 20)}
    assert {product for _, product in products} > {"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA GB200"}
    assert len(cliques.split()) == 4
    assert [each.split()[1] for each in claims.splitlines()] == ["allocated,reserved"] * 4
    assert [use for use in json.loads(access) if not use.get("allowed", True)] == []


async def kubectl(up: Up, *arguments: str) -> str:
    """Run kubectl against it; returns the output."""
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "--kubeconfig", up.endpoints.kubeconfig, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await asyncio.wait_for(process.communicate(), WAIT_SECONDS))[0].decode()
    assert process.returncode == 0, output
    return output


async def test_traces_of_every_service_are_kept_after_shutdown(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with running_up(state) as up:
        await up.says("koordinator/default/resnet satisfied, 8/8 bound")
        code, out, err = await ran("trace", "resnet", "--state-dir", str(state), "-o", "json")
        assert code in (0, 1), err  # spans may still be exported
    code, out, err = await ran("trace", "default/resnet", "--state-dir", str(state), "-o", "json")
    assert code == 0, err
    spans = json.loads(out)["spans"]
    assert {"muster-coordinator", "muster-placement", "muster-binding"} <= {span["service"] for span in spans}
    assert {"gang.solving", "placement.search", "gang.permitted", "gang.binding"} <= {span["name"] for span in spans}
    ids = {span["span_id"] for span in spans}
    assert [span["name"] for span in spans if span.get("parent_id", "") not in ids] == ["gang"]


async def test_child_processes_end_when_up_is_killed(tmp_path: Path) -> None:
    async with running_up(tmp_path / "state", "--no-examples", "--nodes", "1") as up:
        await up.says("kubectl get nodes,pods")
        children = up.children()
        assert len(children) == PROCESSES
        up.process.kill()
        await all_gone(children)
