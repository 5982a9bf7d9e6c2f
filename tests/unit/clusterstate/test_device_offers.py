"""Offers of a node with a large pool are computed in steps, between which they stay as they were (I12)."""

from builders.clusterstate.history import History, node_object, pod_object
from builders.kube.devices import (
    DRIVER,
    Object,
    device_class_object,
    device_object,
    exactly,
    resource_claim_object,
    slice_object,
    using_claims,
)
from muster.clusterstate.device_offers import STEP, WEIGHT_OF_STEP
from muster.clusterstate.recomputation import SLICE
from muster.gangs.counted_resources import is_device_resource
from muster.kube.api_resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

PARTS, DEVICES = 8, 128
SELECTIONS = 3
MOST_AT_ONCE = (SLICE // WEIGHT_OF_STEP + 1) * 2 * (STEP + DEVICES)
"""Expressions that are evaluated in one slice: one of the class and one of the request for each device."""


def pool(*, generation: int = 1, number: int = DEVICES) -> list[Object]:
    """A pool of 8 slices on one node."""
    return [
        slice_object(
            f"n0-{part}",
            [device_object(f"gpu-{part}-{i}", serial=part * number + i) for i in range(number)],
            node="n0",
            pool="n0",
            generation=generation,
            count=PARTS,
        )
        for part in range(PARTS)
    ]


def evaluations(history: History) -> int:
    return history.state.pods.devices.objects.devices.results.evaluations


def offered(history: History) -> list[int]:
    """Numbers of the selections' devices that the node offers."""
    return sorted(amount for name, amount in history.state.nodes.facts["n0"].allocatable if is_device_resource(name))


def select(history: History, *numbers: int) -> None:
    """A pod for each number, which claims a device with a greater serial number."""
    for number in numbers:
        expression = f"device.attributes['{DRIVER}'].serial >= {number}"
        history.put(RESOURCE_CLAIMS, resource_claim_object(f"claim-{number}", exactly(1, expression)))
    history.pods(*(pod_object(f"x{each}", resourceClaims=using_claims(f"claim-{each}")) for each in numbers))


def cluster() -> History:
    """A node with a large pool, of which devices with three selections are counted."""
    history = History()
    history.put(NODES, node_object("n0"))
    history.put(DEVICE_CLASSES, device_class_object())
    history.put(RESOURCE_SLICES, *pool())
    history.review()
    select(history, *range(SELECTIONS))
    history.review()
    return history


def advance(history: History) -> list[int]:
    """Compute the rest; returns how many expressions each slice evaluated."""
    found = []
    while history.state.has_work:
        before = evaluations(history)
        history.state.advance()
        found.append(evaluations(history) - before)
    return found


def test_a_large_pool_is_counted() -> None:
    total = PARTS * DEVICES
    selected = [total - each for each in range(SELECTIONS)]
    assert offered(cluster()) == sorted([*selected, total]), "and those of the class"


def test_new_selectors_are_evaluated_in_steps_and_offers_stay_meanwhile() -> None:
    history = cluster()
    before = offered(history)
    select(history, 100, 101, 102)
    assert history.state.has_work
    assert offered(history) == before
    spent = advance(history)
    assert sum(spent) > PARTS * DEVICES > 2 * STEP
    assert max(spent) <= MOST_AT_ONCE
    assert len(offered(history)) == len(before) + 3


def test_a_pool_that_changes_while_it_is_evaluated_is_evaluated_anew() -> None:
    history = cluster()
    select(history, 100, 101, 102)
    history.state.advance()
    history.put(RESOURCE_SLICES, *pool(generation=2, number=100))
    once = 2 * PARTS * DEVICES  # the selection that was being evaluated, for the new pool
    assert max(advance(history)) <= MOST_AT_ONCE + once
    fresh = cluster()
    select(fresh, 100, 101, 102)
    fresh.put(RESOURCE_SLICES, *pool(generation=2, number=100))
    fresh.review()
    assert offered(history) == offered(fresh)
    assert not history.state.pods.device_offers.take_begun()


def test_nodes_that_change_while_they_are_evaluated_offer_what_they_did() -> None:
    history = cluster()
    before = offered(history)
    select(history, 100)
    history.put(NODES, node_object("n0", labels={"zone": "a"}))
    assert offered(history) == before
    assert max(advance(history)) <= MOST_AT_ONCE
    assert len(offered(history)) == len(before) + 1


def test_a_node_that_is_removed_while_it_is_evaluated_leaves_nothing_i11() -> None:
    history = cluster()
    select(history, 100)
    history.remove(NODES, "uid-n0")
    advance(history)
    offers = history.state.pods.device_offers
    assert not (offers._offers or offers._steps or offers._begun or offers._computed or offers._changed)


def test_revisions_wait_for_the_evaluation() -> None:
    history = cluster()
    select(history, 100)
    reached = dict(history.state.through)
    assert reached[PODS.kind] < history.revision
    advance(history)
    assert history.state.through[PODS.kind] == history.revision
