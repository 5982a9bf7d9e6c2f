"""Ranks follow the distance from the master; members near each other have consecutive ranks."""

from random import Random

import pytest

from muster.topology.ranks import Path, natural_order, ranks

PATHS: dict[str, Path] = {"a": ("r0",), "b": ("r0",), "c": ("r1",), "d": ("r1",)}


def by_rank(members: list[tuple[str, str]], paths: dict[str, Path] = PATHS) -> list[str]:
    given = ranks(members, paths)
    assert sorted(given) == list(range(len(members)))
    names = [""] * len(members)
    for (name, _), rank in zip(members, given, strict=True):
        names[rank] = name
    return names


def test_p37_ranks_follow_the_distance_from_the_master() -> None:
    members = [("job-master-0", "b")]
    members += [(f"job-worker-{number}", node) for number, node in enumerate("cacbadb")]
    assert by_rank(members) == [
        "job-master-0",  # b
        *("job-worker-3", "job-worker-6"),  # b
        *("job-worker-1", "job-worker-4"),  # a, in the same rack
        *("job-worker-0", "job-worker-2"),  # c
        "job-worker-5",  # d
    ]


def test_without_a_master_the_first_by_name_has_rank_0() -> None:
    assert by_rank([("w-10", "a"), ("w-9", "c"), ("w-11", "d")]) == ["w-9", "w-11", "w-10"]


def test_of_several_masters_the_first_by_name_has_rank_0() -> None:
    assert by_rank([("a-0", "a"), ("master-10", "b"), ("master-2", "c")])[0] == "master-2"


def test_ties_are_ordered_by_name_in_natural_order() -> None:
    members = [(f"job-{number}", "a") for number in (10, 2, 1, 0, 33)]
    assert by_rank(members) == ["job-0", "job-1", "job-2", "job-10", "job-33"]


def test_members_of_one_distant_domain_are_consecutive() -> None:
    paths: dict[str, Path] = {f"n{rack}{node}": (f"r{rack}",) for rack in range(4) for node in range(2)}
    members = [("w-0", "n00")]
    members += [(f"w-{number}", f"n{1 + number % 3}{number % 2}") for number in range(1, 13)]
    nodes = dict(members)
    ranked = [nodes[name] for name in by_rank(members, paths)]
    racks = [node[:2] for node in ranked]
    for sequence in (ranked, racks):
        runs = [each for at, each in enumerate(sequence) if not at or sequence[at - 1] != each]
        assert len(runs) == len(set(runs))


def test_levels_above_the_rack_count() -> None:
    paths: dict[str, Path] = {"a": ("z0", "r0"), "b": ("z0", "r1"), "c": ("z1", "r0")}
    assert by_rank([("w-0", "a"), ("w-1", "c"), ("w-2", "b")], paths) == ["w-0", "w-2", "w-1"]


def test_nodes_outside_of_the_tree_are_the_farthest() -> None:
    members = [("w-0", "a"), ("w-1", "x"), ("w-2", "y"), ("w-3", "x"), ("w-4", "d"), ("w-5", "a")]
    assert by_rank(members) == ["w-0", "w-5", "w-4", "w-1", "w-3", "w-2"]
    assert by_rank([("w-0", "x"), ("w-1", "a"), ("w-2", "x"), ("w-3", "y")]) == ["w-0", "w-2", "w-1", "w-3"]


def test_in_a_flat_tree_members_of_one_node_are_consecutive() -> None:
    flat: dict[str, Path] = {"a": (), "b": (), "c": ()}
    members = [("w-0", "b"), ("w-1", "a"), ("w-2", "c"), ("w-3", "a"), ("w-4", "b")]
    assert by_rank(members, flat) == ["w-0", "w-4", "w-1", "w-3", "w-2"]


def test_no_members_have_no_ranks() -> None:
    assert ranks([], PATHS) == []


@pytest.mark.parametrize("seed", range(20))
def test_p39_the_order_in_which_members_are_given_does_not_matter(seed: int) -> None:
    random = Random(seed)
    members = [(f"w-{number}", random.choice("abcdx")) for number in range(40)]
    ranked = by_rank(members)
    random.shuffle(members)
    assert by_rank(members) == ranked


@pytest.mark.parametrize("seed", range(20))
def test_distances_from_the_master_never_decrease(seed: int) -> None:
    random = Random(seed)
    paths: dict[str, Path] = {f"n{at}": (f"z{at % 2}", f"r{at % 8}") for at in range(40)}
    members = [(f"w-{number}", f"n{random.randrange(40)}") for number in range(100)]
    nodes = dict(members)
    home = nodes["w-0"]

    def distance(node: str) -> int:
        shared = sum(one == other for one, other in zip(paths[home], paths[node], strict=True))
        return 0 if node == home else 2 * (3 - shared)

    distances = [distance(nodes[name]) for name in by_rank(members, paths)]
    assert distances == sorted(distances)


def test_natural_order_compares_any_names() -> None:
    ordered = ["", "07", "7", "10", "a", "a2b", "a-02", "a-2", "a-2-b", "a-9", "a-10", "b"]
    given = list(ordered)
    given.reverse()
    given.sort(key=natural_order)
    assert given == ordered
