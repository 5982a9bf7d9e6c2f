"""`muster topology` reads a cluster-state and prints tables or JSON."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from builders.clusterstate.stream import ClusterStream, serving
from muster.cli.cluster_state import find_cluster_state
from muster.cli.endpoints import Endpoints
from muster.cli.errors import CliError
from muster.cli.topology import show_topology
from muster.gangs.facts import (
    Batch,
    NodeFacts,
    ObjectReference,
    PodClass,
    PodFacts,
    Problem,
    Severity,
    TopologyTree,
    TreeDomain,
    TreeLevel,
)
from muster.rpc.watch_codec import batch_step, snapshot_begin_step
from muster.topology.trees import label_tree

TREE = TopologyTree(
    "halls",
    (TreeLevel("hall"), TreeLevel("rack"), TreeLevel("node")),
    (TreeDomain("h0", 0), TreeDomain("r0", 1, 0), TreeDomain("r1", 1, 0)),
    (("a", 1), ("b", 2)),
    default=True,
    definition=ObjectReference("v1", "ConfigMap", "default", "m", "uid"),
    problems=(Problem(Severity.WARNING, "a [small] thing"), Problem(Severity.BLOCKING, "a large one")),
)
NODES = tuple(NodeFacts(name, allocatable=(("cpu", 8000), ("memory", 64 << 30), ("pods", 110))) for name in "abx")
BATCH = Batch(
    pod_classes=(PodClass("k", (("cpu", 500), ("memory", 1 << 30), ("pods", 1))),),
    nodes=NODES,
    pods=(PodFacts("u1", "ml", "p1", "k", node="a"), PodFacts("u2", "ml", "p2", "k")),
    trees=(label_tree({"zone": "topology.kubernetes.io/zone"}), TREE),
)


@pytest.fixture
async def stream() -> ClusterStream:
    stream = ClusterStream()
    stream.opens_with(BATCH, {"pods": 7})
    return stream


@pytest.fixture
async def address(stream: ClusterStream) -> AsyncIterator[str]:
    async with serving(stream) as address:
        yield address


async def shown(address: str, tree: str = "", *, with_nodes: bool = False, as_json: bool = False) -> None:
    await asyncio.to_thread(show_topology, address, tree, with_nodes=with_nodes, as_json=as_json)


async def test_trees_are_tables_with_the_default_first(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    await shown(address)
    assert capsys.readouterr().out.splitlines() == [
        "halls of ConfigMap default/m, the default: hall > rack > node",
        "warning: a [small] thing",
        "error: a large one",
        "DOMAIN     LEVEL  NODES  FREE CPU  FREE MEMORY  FREE PODS",
        "h0         hall       2   15.5/16  127Gi/128Gi    219/220",
        "  r0       rack       1     7.5/8    63Gi/64Gi    109/110",
        "  r1       rack       1       8/8    64Gi/64Gi    110/110",
        "(all)                 2   15.5/16  127Gi/128Gi    219/220",
        "(outside)             1       8/8    64Gi/64Gi    110/110",
        "",
        "labels by node labels: zone (topology.kubernetes.io/zone) > node",
        "DOMAIN     LEVEL  NODES  FREE CPU  FREE MEMORY  FREE PODS",
        "(all)                 0       0/0          0/0        0/0",
        "(outside)             3   23.5/24  191Gi/192Gi    329/330",
    ]


async def test_one_tree_with_its_nodes(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    await shown(address, "halls", with_nodes=True)
    out = capsys.readouterr().out
    assert "    a      node       1     7.5/8" in out
    assert "labels" not in out


async def test_as_json(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    await shown(address, "halls", as_json=True)
    (tree,) = json.loads(capsys.readouterr().out)["trees"]
    assert (tree["name"], tree["default"]) == ("halls", True)
    assert tree["definition"] == {"kind": "ConfigMap", "namespace": "default", "name": "m"}
    assert [problem["severity"] for problem in tree["problems"]] == ["warning", "blocking"]
    domains: dict[str, Any] = {"/".join(each["path"]): each for each in tree["domains"]}
    assert list(domains) == ["h0", "h0/r0", "h0/r1"]
    assert domains["h0/r0"]["free"] == {"cpu": 7500, "memory": 63 << 30, "pods": 109}
    assert (tree["whole"]["nodes"], tree["outside"]["nodes"], tree["absent_nodes"]) == (2, 1, [])


async def test_an_unknown_tree_suggests_similar_names(address: str) -> None:
    with pytest.raises(CliError) as raised:
        await shown(address, "hall")
    assert "'hall'" in raised.value.message
    assert raised.value.hint == "did you mean halls?"


async def test_an_unreachable_cluster_state_is_an_error() -> None:
    with pytest.raises(CliError, match=r"cluster-state at .* is unavailable"):
        await shown("127.0.0.1:1")


async def test_an_incomplete_snapshot_is_an_error(address: str, stream: ClusterStream) -> None:
    stream.opening = [snapshot_begin_step("subscribed"), batch_step(BATCH)]
    asking = asyncio.create_task(shown(address))
    await stream.until_subscribed()
    stream.cut()
    with pytest.raises(CliError, match=r"cluster-state at .* is unavailable"):
        await asking


async def test_the_command_line(address: str, tmp_path: Path) -> None:
    arguments = ("topology", "halls", "--nodes", "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", *arguments),
        env={**os.environ, "MUSTER_CLUSTER_STATE": address},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    paths = ["/".join(each["path"]) for each in json.loads(out)["trees"][0]["domains"]]
    assert paths == ["h0", "h0/r0", "h0/r0/a", "h0/r1", "h0/r1/b"]


def test_address_of_cluster_state(tmp_path: Path) -> None:
    assert find_cluster_state("here:1", tmp_path) == "here:1"
    with pytest.raises(CliError) as raised:
        find_cluster_state("", tmp_path)
    assert "--cluster-state" in raised.value.hint and raised.value.exit_code == 2
    named: dict[str, Any] = dict.fromkeys(("kubeconfig", "etcd", "placement", "binding", "coordinator"), "")
    Endpoints(pid=1, cluster_state="there:1", **named).write(tmp_path)
    assert find_cluster_state("", tmp_path) == "there:1"
