"""Allocations of random instances keep the rules, and counts agree with the search."""

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.devices.checker import broken_rules
from builders.devices.facts import claim, cluster, mig, node, way
from builders.devices.random_devices import decoded, random_instance
from muster.devices.counting import Copies, copies_of
from muster.devices.facts import DeviceId
from muster.devices.instance import instance_of, problem_of
from muster.devices.search import Outcome, search

SEEDS = st.integers(10_000, 10**9)


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_allocations_keep_the_rules(seed: int) -> None:
    instance = random_instance(seed)
    devices, node, claims = decoded(instance)
    answer = devices.allocate(node, claims)
    assert answer.outcome is not Outcome.NOT_FOUND
    if answer.outcome is Outcome.FOUND:
        assert broken_rules(instance, claims, answer.allocations) == []


@given(SEEDS, st.integers(1, 6), st.integers(0, 1))
@settings(max_examples=150, deadline=None)
def test_counts_agree_with_the_search(seed: int, limit: int, shared: int) -> None:
    devices, node, claims = decoded(random_instance(seed))
    problem = problem_of(claims, devices.classes)
    shape = instance_of(problem, devices.pools.on_node(node), devices.allocated, devices.results).shape
    shared = min(shared, len(claims) - 1)
    found = copies_of(shape, problem, limit, shared)
    outcomes = [search(shape, problem, number, shared).outcome for number in range(1, limit + 2)]
    if found.number:
        assert outcomes[found.number - 1] is not Outcome.IMPOSSIBLE
    if found.proved and found.number < limit:
        assert outcomes[found.number] is not Outcome.FOUND
    assert found.proved or Outcome.NOT_FOUND in outcomes
    assert devices.how_many(node, claims, limit, shared) == found


@given(SEEDS, st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_counts_that_are_kept_agree_with_new_ones(seed: int, changes: list[tuple[bool, int]]) -> None:
    """Of nodes that share pools and have some of their own, while devices are allocated and released."""
    devices, first, claims = decoded(random_instance(seed))
    nodes = [first, node("more", zone="a"), node("others", zone="b")]
    ids = sorted(DeviceId(each.driver, each.pool, one.name) for each in devices.pools.slices for one in each.devices)
    for allocates, number in changes or [(False, 0)]:
        if ids:
            (devices.allocate_ids if allocates else devices.release_ids)([ids[number % len(ids)]])
        for each in nodes:
            problem = problem_of(claims, devices.classes)
            shape = instance_of(problem, devices.pools.on_node(each), devices.allocated, devices.results).shape
            assert devices.how_many(each, claims, 4) == copies_of(shape, problem, 4)


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_counted_pods_can_be_allocated_one_after_the_other(seed: int) -> None:
    devices, node, claims = decoded(random_instance(seed))
    exclusive = [each for each in claims if not any(one.admin_access for r in each.requests for one in r.alternatives)]
    number = devices.how_many(node, exclusive, 4).number
    fitted = 0
    while fitted < number:
        answer = devices.allocate(node, exclusive)
        if answer.outcome is not Outcome.FOUND:
            break
        fitted += 1
        devices.allocate_ids(each.id for allocation in answer.allocations for each in allocation.results)
        assert devices.how_many(node, exclusive, 4).number <= number
    assert bool(number) == bool(fitted)


@given(
    st.integers(1, 4),
    st.lists(st.sampled_from((1, 2, 4, 8)), max_size=8),
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(0, 2),
)
@settings(max_examples=100, deadline=None)
def test_partitions_are_packed_completely(
    cards: int, taken: list[int], eighths: int, quarters: int, halves: int
) -> None:
    """Sizes divide each other, so the largest first in any card with capacity is optimal."""
    wanted = {1: eighths, 2: quarters, 4: halves}
    devices, here = cluster(*mig("n1", cards)), node("n1")
    left = [8] * cards
    for number, size in enumerate(taken):
        card = number % cards
        if left[card] >= size:
            index = sum(each.device.startswith(f"card-{card}-{size}-") for each in devices.allocated)
            devices.allocate_ids([DeviceId("gpu", "n1", f"card-{card}-{size}-{index}")])
            left[card] -= size
    claims = [claim(*(way(number, kind=f"mig{size}") for size, number in wanted.items() if number))]
    expected = max(
        number for number in range(6) if _packed(list(left), {size: each * number for size, each in wanted.items()})
    )
    assert devices.how_many(here, claims, 5) == Copies(expected)


def _packed(left: list[int], wanted: dict[int, int]) -> bool:
    for size in sorted(wanted, reverse=True):
        for _ in range(wanted[size]):
            card = next((index for index, each in enumerate(left) if each >= size), None)
            if card is None:
                return False
            left[card] -= size
    return True
