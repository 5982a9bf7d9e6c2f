"""Choice of static volumes: for all claims of a group together, each volume once."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.core.objects import node
from builders.gangs.facts import gang
from muster.coordinator.core.cache.volume_choices import Chosen, NoVolume, VolumeChoices
from muster.coordinator.core.events import Seat
from muster.gangs.facts import (
    Batch,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodFacts,
    StaticClaim,
    StaticVolume,
)
from muster.gangs.node_regions import EVERYWHERE, Region

RWO = ("ReadWriteOnce",)
NODES = ("n0", "n1")


def on(*nodes: str) -> Region:
    terms = [NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (name,)),)) for name in nodes]
    return (tuple(terms),)


def volume(name: str, region: Region = EVERYWHERE, size: int = 1, claim: str = "") -> StaticVolume:
    return StaticVolume(name, "local", size, RWO, region=region, claim=claim)


def pods(*sizes: Sequence[int]) -> tuple[list[PodFacts], list[StaticClaim]]:
    """Pods with claims of these sizes each."""
    made, claims = [], []
    for number, (pod, of_pod) in enumerate(zip(gang("g").of(len(sizes)).pods(), sizes, strict=True)):
        names = tuple(f"c{number}-{index}" for index in range(len(of_pod)))
        made.append(replace(pod, claims=names))
        claims += [
            StaticClaim(f"{pod.namespace}/{name}", "local", size, RWO) for name, size in zip(names, of_pod, strict=True)
        ]
    return made, claims


def choices(volumes: Sequence[StaticVolume], claims: Sequence[StaticClaim]) -> VolumeChoices:
    made = VolumeChoices()
    for name in NODES:
        made.put_node(node(name, 8))
    made.apply(Batch(static_volumes=tuple(volumes), static_claims=tuple(claims)))
    return made


def chosen(made: VolumeChoices, members: Sequence[PodFacts], nodes: Sequence[str]) -> Chosen | NoVolume:
    seats = [seat(pod, name) for pod, name in zip(members, nodes, strict=True)]
    return made.choose(seats, {pod.uid: pod for pod in members})


def seat(pod: PodFacts, name: str) -> Seat:
    return Seat(pod.uid, pod.namespace, pod.name, pod.class_id, name)


def volumes_of(found: Chosen | NoVolume) -> list[str]:
    assert isinstance(found, dict), found
    return [name for pairs in found.values() for _, name in pairs]


def test_the_smallest_one_that_is_large_enough() -> None:
    members, claims = pods([3])
    made = choices([volume("s", size=2), volume("l", size=9), volume("m", size=4)], claims)
    assert volumes_of(chosen(made, members, ["n0"])) == ["m"]


def test_one_that_is_reserved_for_the_claim_first() -> None:
    members, claims = pods([1])
    made = choices([volume("a"), volume("b", size=5, claim=claims[0].id), volume("c", claim="ml/x")], claims)
    assert volumes_of(chosen(made, members, ["n0"])) == ["b"]


def test_a_volume_for_other_claims_only_is_none() -> None:
    members, claims = pods([1])
    found = chosen(choices([volume("a", claim="ml/x")], claims), members, ["n0"])
    assert isinstance(found, NoVolume)
    assert found.message.startswith('node n0 has no free volume of storage class "local" of at least 1 bytes')


def test_a_claim_leaves_the_smallest_volume_to_one_that_has_no_other() -> None:
    members, claims = pods([1], [1])
    made = choices([volume("everywhere"), volume("here", on("n0"), size=5)], claims)
    found = chosen(made, members, ["n0", "n1"])
    assert found == {members[0].uid: (("c0-0", "here"),), members[1].uid: (("c1-0", "everywhere"),)}


def test_volumes_that_few_nodes_can_use_are_not_spared() -> None:
    members, claims = pods([1], [1])
    made = choices([volume("everywhere"), volume("here", on("n0"))], claims)
    assert sorted(volumes_of(chosen(made, members, ["n0", "n1"]))) == ["everywhere", "here"]


def test_a_volume_of_a_reservation_is_not_chosen_again() -> None:
    members, claims = pods([1], [1])
    made = choices([volume("a"), volume("b")], claims)
    first = replace(seat(members[0], "n0"), volumes=(("c0-0", "a"),))
    made.take(first)
    assert volumes_of(chosen(made, members[1:], ["n0"])) == ["b"]
    made.release(first)
    assert volumes_of(chosen(made, members[1:], ["n0"])) == ["a"]
    assert made.taken == {}


def test_i11_nothing_is_kept_of_volumes_and_claims_that_are_gone() -> None:
    members, claims = pods([1])
    made = choices([volume("a", on("n0")), volume("b")], claims)
    made.apply(Batch(removed_static_volumes=("a", "b", "never"), removed_static_claims=(claims[0].id, "ml/never")))
    assert (made.volumes, made.claims, made._free, made._regions._members) == ({}, {}, {}, {})
    assert chosen(made, members, ["n0"]) == {}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([EVERYWHERE, on("n0"), on("n1"), on("n0", "n1")]), st.integers(1, 3)), max_size=5
    ),
    st.lists(st.tuples(st.lists(st.integers(1, 3), max_size=2), st.sampled_from(NODES)), min_size=1, max_size=3),
)
def test_a_choice_is_found_if_and_only_if_there_is_one(
    given_: list[tuple[Region, int]], wanted: list[tuple[list[int], str]]
) -> None:
    members, claims = pods(*(sizes for sizes, _ in wanted))
    volumes = [volume(f"v{number}", region, size) for number, (region, size) in enumerate(given_)]
    nodes = [name for _, name in wanted]
    found = chosen(choices(volumes, claims), members, nodes)
    needs = [(size, name) for sizes, name in wanted for size in sizes]

    def suits(each: StaticVolume, need: tuple[int, str]) -> bool:
        return each.size_bytes >= need[0] and each.region in (EVERYWHERE, on(need[1]), on(*NODES))

    possible = any(all(map(suits, picked, needs)) for picked in permutations(volumes, len(needs)))
    assert isinstance(found, dict) == possible
    if isinstance(found, dict):
        by_name = {each.name: each for each in volumes}
        picked = [by_name[name] for pod in members for _, name in sorted(found.get(pod.uid, ()))]
        assert len({each.name for each in picked}) == len(needs)
        assert all(map(suits, picked, needs))


class _Counted(list[tuple[int, str]]):
    """Free volumes; counts how many of them are looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        _Counted.looked_at += 1
        return super().__getitem__(index)


def test_i12_claims_of_many_sizes_look_at_few_of_the_volumes_that_any_node_can_use() -> None:
    members, claims = pods(*([1 + number] for number in range(50)))
    made = choices([volume(f"v{number:04}", size=1 + number % 100) for number in range(2000)], claims)
    for kinds in made._free.values():
        for kind, sizes in kinds.items():
            kinds[kind] = _Counted(sizes)
    assert len(set(volumes_of(chosen(made, members, ["n0"] * 50)))) == 50
    assert 0 < _Counted.looked_at < 50 * 40, "a binary search and a few more, for each claim"


def test_free_volumes_are_the_same_whatever_the_order_of_events() -> None:
    members, claims = pods([1], [1])
    made = choices([volume("a"), volume("b", size=2)], claims)
    first = replace(seat(members[0], "n0"), volumes=(("c0-0", "a"),))
    made.take(first)
    made.take(first)
    made.apply(Batch(static_volumes=(volume("a", size=3),)))
    assert volumes_of(chosen(made, members[1:], ["n0"])) == ["b"]
    made.release(first)
    made.release(first)
    assert volumes_of(chosen(made, members, ["n0", "n0"])) == ["b", "a"]
    made.take(first)
    made.apply(Batch(removed_static_volumes=("a",)))
    made.release(first)
    assert volumes_of(chosen(made, members[1:], ["n0"])) == ["b"]
    made.apply(Batch(static_volumes=(volume("a"),)))
    assert volumes_of(chosen(made, members[1:], ["n0"])) == ["a"]
