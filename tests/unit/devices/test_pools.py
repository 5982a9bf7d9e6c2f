"""Pools are assembled from the newest complete generation, for the nodes that can use their devices."""

import msgspec
import pytest

from builders.devices.facts import DRIVER, device, gpus, node
from muster.devices.facts import MAX_POOL_DEVICES, CounterSet, Device, Slice
from muster.devices.pools import Pools
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm

ZONE_A = (NodeSelectorTerm((NodeRequirement("zone", NodeOperator.IN, ("a",)),)),)


def pools(*slices: Slice) -> Pools:
    found = Pools()
    for each in slices:
        found.put(each)
    return found


def part(name: str, devices: tuple[Device, ...] = (), **fields: object) -> Slice:
    defaults = {"driver": DRIVER, "pool": "p", "node_name": "n1", "devices": devices}
    return Slice(**{"name": name, **defaults, **fields})  # type: ignore[arg-type]


def names(found: Pools, on: str = "n1", **labels: str) -> dict[str, list[str]]:
    """Usable devices by pool; a pool with a problem has none."""
    return {
        each.name: [] if each.problem else [one.name for one_part in each.parts for _, one in one_part.devices()]
        for each in found.on_node(node(on, **labels))
    }


def test_a_node_has_its_own_pool() -> None:
    found = pools(gpus("n1", 2), gpus("n2", 1))
    assert names(found) == {"n1": ["gpu-0", "gpu-1"]}
    assert names(found, "n3") == {}


def test_the_newest_generation_counts() -> None:
    old, new = part("old", (device("a"),), generation=1), part("new", (device("b"),), generation=2)
    found = pools(new, old)
    assert names(found) == {"p": ["b"]}
    found.remove("new")
    assert names(found) == {"p": ["a"]}, "a generation that goes back is used once the newer one is gone"


def test_an_older_generation_is_not_used_where_the_newer_has_no_devices() -> None:
    found = pools(part("old", (device("a"),)), part("new", (device("b"),), generation=1, node_name="n2"))
    assert names(found) == {}


def test_a_pool_is_incomplete_until_all_slices_exist() -> None:
    found = pools(part("one", (device("a"),), count=2))
    assert found.on_node(node("n1"))[0].problem == "is incomplete: 1 of 2 ResourceSlices exist"
    found.put(part("two", (device("b"),), count=2))
    assert names(found) == {"p": ["a", "b"]}


def test_slices_of_other_nodes_make_a_pool_complete() -> None:
    found = pools(part("one", (device("a"),), count=2), part("two", (device("b"),), count=2, node_name="n2"))
    assert names(found) == {"p": ["a"]}


@pytest.mark.parametrize(
    ("slices", "problem"),
    [
        ([part("s", (device("a"), device("a")))], 'has two devices named "a"'),
        ([part("s", (device("a", counters=1),))], 'has no counter set "set", which device "a" consumes'),
        (
            [part("s", (device("a", counters=1),), count=2), part("t", count=2, shared=(CounterSet("set"),))],
            'has no counter "memory" in counter set "set", which device "a" consumes',
        ),
        ([part("s", shared=(CounterSet("set"), CounterSet("set")))], 'has two counter sets named "set"'),
        ([part("s", (device("a"),) * (MAX_POOL_DEVICES + 1))], "has more than 4096 devices"),
    ],
)
def test_invalid_pools_say_why(slices: list[Slice], problem: str) -> None:
    assert pools(*slices).on_node(node("n1"))[0].problem == problem


def test_node_selection_of_slices() -> None:
    found = pools(
        part("s", (device("a"),), node_name="", all_nodes=True),
        part("t", (device("b"),), node_name="", pool="q", node_selector=ZONE_A),
        part("u", (device("c"),), node_name="", pool="r"),
    )
    assert names(found, "n9") == {"p": ["a"]}
    assert names(found, "n9", zone="a") == {"p": ["a"], "q": ["b"]}


def test_node_selection_of_devices() -> None:
    devices = (
        msgspec.structs.replace(device("a"), node_name="n1"),
        msgspec.structs.replace(device("b"), node_selector=ZONE_A),
        msgspec.structs.replace(device("c"), all_nodes=True),
        device("d"),
    )
    found = pools(part("s", devices, node_name="", per_device=True))
    assert names(found, "n1") == {"p": ["a", "c"]}
    assert names(found, "n2", zone="a") == {"p": ["b", "c"]}


def test_counters_of_a_pool_count_devices_on_other_nodes() -> None:
    found = pools(
        part("s", (device("a", counters=1),), count=3),
        part("t", (device("b", counters=2),), count=3, node_name="n2"),
        part("u", count=3, node_name="", all_nodes=True, shared=(CounterSet("set", (("memory", 4),)),)),
    )
    pool = found.on_node(node("n1"))[0]
    assert pool.counters == {("set", "memory"): 4}
    assert [id_.device for id_, _ in pool.consumers] == ["a", "b"]


def test_nothing_remains_of_removed_slices() -> None:
    found = pools(gpus("n1", 2), part("s", (device("a"),), node_name="", all_nodes=True))
    empty = {name: value for name, value in vars(Pools()).items() if name not in ("_changes", "_last_view")}
    assert names(found)
    found.remove("n1")
    found.remove("s")
    found.remove("s")
    assert {name: value for name, value in vars(found).items() if name not in ("_changes", "_last_view")} == empty


def test_i11_nothing_is_left_of_nodes_that_saw_a_part_of_a_shared_pool() -> None:
    devices = tuple(
        msgspec.structs.replace(
            device(f"d{i}"), node_selector=(NodeSelectorTerm((NodeRequirement(f"rack-{i}", NodeOperator.EXISTS),)),)
        )
        for i in range(100)
    )
    found = pools(part("s", devices, node_name="", per_device=True))
    for number in range(1000):
        seen = {f"rack-{number % 100}": "", f"rack-{number * 7 % 100}": ""}
        assert sorted(names(found, f"n{number}", **seen)["p"]) == sorted(each.replace("rack-", "d") for each in seen)
        found.remove_node(f"n{number}")
    assert sum(map(len, vars(found)["_views"].values())) <= 20
