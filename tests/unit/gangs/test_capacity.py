"""Allocatable and used amounts of nodes; pods are seated by uid, so that none counts twice."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.placement.clusters import GPU, node, pod_class
from muster.gangs.capacity import NOT_OFFERED, Capacity
from muster.gangs.facts import NodeFacts, PodClass
from muster.gangs.quantity import MAX_AMOUNT


def capacity(*names: str) -> Capacity:
    built = Capacity()
    built.put_node(node("another", 8))  # resources have a column as long as some node has them
    for name in names:
        built.put_node(node(name, 8))
    for cpu in (1, 2, 3):
        built.put_class(pod_class(f"x{cpu}", cpu))
    return built


def free_cpu(of: Capacity, name: str) -> int:
    return int(of.free(name)[of.resources["cpu"]])


def test_seated_pods_use_capacity_until_released() -> None:
    room = capacity("a")
    room.seat([("p", "x2", "a", 0), ("q", "x3", "a", 0)])
    assert free_cpu(room, "a") == 3000
    assert room.release(["p", "unknown"]) == ["a"]
    assert free_cpu(room, "a") == 5000
    assert room.release(["p"]) == []


def test_a_pod_seated_twice_counts_once_and_on_its_last_node() -> None:
    room = capacity("a", "b")
    room.seat([("p", "x2", "a", 0)])
    room.seat([("p", "x2", "a", 0)])
    assert free_cpu(room, "a") == 6000
    room.seat([("p", "x3", "b", 0)])
    assert (free_cpu(room, "a"), free_cpu(room, "b")) == (8000, 5000)
    assert room.seated_on("p") == "b"


def test_pods_on_a_removed_node_still_count_when_it_returns() -> None:
    room = capacity("a")
    room.seat([("p", "x2", "a", 0)])
    room.drop_node("a")
    assert "a" not in room
    assert free_cpu(room, "a") == -2000
    room.put_node(node("a", 8))
    assert free_cpu(room, "a") == 6000


def test_pods_can_be_seated_before_their_node_is_added() -> None:
    room = capacity()
    room.seat([("p", "x2", "late", 0)])
    room.put_node(node("late", 8))
    assert free_cpu(room, "late") == 6000


def test_pods_can_leave_and_join_an_unknown_node_at_once() -> None:
    room = capacity("a")
    room.seat([("p", "x2", "ghost", 0)])
    room.seat([("q", "x3", "ghost", 0), ("p", "x2", "a", 0)])
    room.put_node(node("new", 8))
    assert free_cpu(room, "new") == 8000
    assert free_cpu(room, "ghost") == -3000


def test_the_row_of_a_removed_node_is_reused() -> None:
    room = capacity("a", "b")
    row = room.rows["a"]
    room.drop_node("a")
    assert room.put_node(node("c", 4)) == row
    assert free_cpu(room, "c") == 4000


def test_an_unknown_class_is_rejected_after_the_pods_before_it() -> None:
    room = capacity("a")
    with pytest.raises(KeyError):
        room.seat([("p", "x2", "a", 0), ("q", "never put", "a", 0)])
    assert free_cpu(room, "a") == 6000
    assert room.seated_on("q") is None


def test_new_resources_can_appear_at_any_time() -> None:
    room = capacity("a")
    room.put_class(pod_class("gpu", 1, gpu=2))
    room.put_node(node("g", 8, gpu=8))
    room.seat([("p", "gpu", "g", 0)])
    assert int(room.free("g")[room.resources[GPU]]) == 6


def test_absurd_amounts_do_not_wrap_around() -> None:
    room = capacity()
    room.put_node(NodeFacts("a", allocatable=(("memory", 2**63 - 1),)))
    room.put_class(PodClass("huge", (("memory", 2**63 - 1),)))
    room.seat([(str(i), "huge", "a", 0) for i in range(500)])
    assert int(room.free("a")[room.resources["memory"]]) < -400 * MAX_AMOUNT


def test_touched_rows_are_those_that_changed_since_a_version() -> None:
    room = capacity("a", "b", "c")
    before = room.version
    room.seat([("p", "x1", "b", 0), ("q", "x1", "c", 0)])
    assert set(np.flatnonzero(room.touched > before)) == {room.rows["b"], room.rows["c"]}
    before = room.version
    room.release(["p"])
    assert set(np.flatnonzero(room.touched > before)) == {room.rows["b"]}
    before = room.version
    room.drop_node("c")
    assert set(np.flatnonzero(room.touched > before)) == {room.rows["c"]}


Step = tuple[str, str, str, str]
steps = st.lists(
    st.tuples(
        st.sampled_from(["seat", "seat", "free", "put", "drop"]),
        st.sampled_from("pqrst"),
        st.sampled_from(["x1", "x2", "x3"]),
        st.sampled_from("abc"),
    ),
    max_size=40,
)


@given(steps)
def test_i3_used_capacity_is_the_sum_of_the_seated_pods(history: list[Step]) -> None:
    room, seats, nodes = capacity(), dict[str, tuple[str, str]](), set[str]()
    for action, uid, class_id, name in history:
        if action == "seat":
            room.seat([(uid, class_id, name, 0)])
            seats[uid] = class_id, name
        elif action == "free":
            room.release([uid])
            seats.pop(uid, None)
        elif action == "put":
            room.put_node(node(name, 8))
            nodes.add(name)
        else:
            room.drop_node(name)
            nodes.discard(name)
    for name in "abc":
        used = sum(int(class_id[1]) * 1000 for class_id, on in seats.values() if on == name)
        if name in nodes:
            assert free_cpu(room, name) == 8000 - used
        elif name in room.rows:
            assert free_cpu(room, name) == -used
        else:
            assert not used
        assert (name in room) == (name in nodes)
    assert room.seats == len(seats)


def asking(name: str, **resources: int) -> PodClass:
    return PodClass(name, tuple(sorted({"pods": 1, **resources}.items())))


def offering(name: str, **resources: int) -> NodeFacts:
    return NodeFacts(name, allocatable=tuple(sorted({"pods": 110, **resources}.items())))


def fitting(of: Capacity, class_id: str) -> dict[str, bool]:
    """Nodes by whether a pod of the class fits there now."""
    asked = of.vectors[of.classes[class_id]]
    rows = ((name, row) for name, row in of.rows.items() if name in of)
    return {name: bool((of.allocatable[row] - of.used[row] >= asked)[asked > 0].all()) for name, row in rows}


def test_resources_that_no_node_has_share_one_column() -> None:
    room = Capacity()
    room.put_node(offering("a", cpu=8))
    for number in range(1000):
        room.put_class(asking(f"c{number}", cpu=1, **{f"r{number}-{index}": 1 for index in range(10)}))
    assert room.width == len(room.resources) == 3
    assert room.vectors.shape[1] < 20
    assert not fitting(room, "c0")["a"]
    assert len(room.lacking("c0")) == 10
    for number in range(1000):
        room.drop_class(f"c{number}")
    assert not room._lacking
    assert not room._wanting


def test_a_class_fits_once_a_node_has_all_that_it_requests() -> None:
    room = Capacity()
    room.put_class(asking("c", cpu=2, gpu=1, disk=1))
    room.put_node(offering("a", cpu=8))
    room.put_node(offering("b", cpu=8, gpu=1))
    assert fitting(room, "c") == {"a": False, "b": False}
    assert room.lacking("c") == {"disk": 1}
    room.put_node(offering("c", cpu=8, gpu=1, disk=1))
    assert fitting(room, "c") == {"a": False, "b": False, "c": True}
    assert not room.lacking("c")
    room.drop_node("c")
    assert fitting(room, "c") == {"a": False, "b": False}
    assert room.lacking("c") == {"disk": 1}


def test_the_column_of_a_resource_that_no_node_has_any_more_is_used_again() -> None:
    room = Capacity()
    for number in range(1000):
        room.put_node(offering("a", **{f"r{number}": 5}))
        room.put_class(asking(f"c{number}", **{f"r{number}": 3}))
        assert fitting(room, f"c{number}") == {"a": True}
        assert not number or fitting(room, f"c{number - 1}") == {"a": False}
    assert room.width <= 4
    assert set(room.resources) == {"pods", "r999", NOT_OFFERED}


def test_seated_pods_use_a_resource_that_nodes_get_later() -> None:
    room = Capacity()
    room.put_class(asking("c", gpu=3))
    room.seat([("p", "c", "a", 0), ("q", "c", "a", 0)])
    room.put_node(offering("a", gpu=8))
    assert int(room.free("a")[room.resources["gpu"]]) == 2
    room.put_node(offering("a"))
    room.put_node(offering("a", gpu=8))
    room.release(["p"])
    assert int(room.free("a")[room.resources["gpu"]]) == 5
    room.release(["q"])
    assert not room.used.any()


names = st.sampled_from(["w", "x", "y", "z"])
amounts_of = st.dictionaries(names, st.integers(1, 3), max_size=3)
resource_changes: st.SearchStrategy[list[Any]] = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from("ab"), amounts_of),
        st.tuples(st.just("drop"), st.sampled_from("ab"), st.none()),
        st.tuples(st.just("seat"), st.sampled_from("pqr"), st.tuples(st.integers(0, 2), st.sampled_from("abc"))),
        st.tuples(st.just("release"), st.sampled_from("pqr"), st.none()),
    ),
    max_size=20,
)


@given(st.lists(amounts_of, min_size=3, max_size=3), resource_changes)
def test_amounts_are_right_whatever_resources_come_and_go(asked: list[dict[str, int]], changes: list[Any]) -> None:
    room, nodes, seats = Capacity(), dict[str, dict[str, int]](), dict[str, tuple[int, str]]()
    for index, each in enumerate(asked):
        room.put_class(asking(f"c{index}", **each))
    for what, name, value in changes:
        if what == "node":
            nodes[name] = value
            room.put_node(offering(name, **value))
        elif what == "drop":
            nodes.pop(name, None)
            room.drop_node(name)
        elif what == "seat":
            seats[name] = value
            room.seat([(name, f"c{value[0]}", value[1], 0)])
        else:
            seats.pop(name, None)
            room.release([name])
        offered = {resource for each in nodes.values() for resource in each}
        assert set(room.resources) - {"pods", NOT_OFFERED} == offered
        for node_name, has in nodes.items():
            free = room.free(node_name)
            for resource in offered:
                used = sum(asked[index].get(resource, 0) for index, at in seats.values() if at == node_name)
                assert int(free[room.resources[resource]]) == has.get(resource, 0) - used
        for index, each in enumerate(asked):
            assert room.lacking(f"c{index}").keys() == (each.keys() | {"pods"}) - offered - (
                {"pods"} if nodes else set()
            )
