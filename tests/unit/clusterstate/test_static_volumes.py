"""Free volumes of classes without provisioner are offers of nodes; claims for them are requests of pods."""

from typing import Any

import pytest

from builders.clusterstate.history import History, node_object, pod_object
from builders.kube.storage import claim_object, local_class, local_volume, using
from muster.clusterstate.static_volumes import MAX_SIZES
from muster.gangs.counted_resources import is_static, static_volumes
from muster.gangs.facts import Amounts, PodFacts, StaticClaim
from muster.kube.api_resources import CLAIMS, NODES, PODS, STORAGE_CLASSES, VOLUMES

GI = 2**30


def cluster(*volumes: dict[str, Any]) -> History:
    history = History()
    history.put(STORAGE_CLASSES, local_class())
    history.put(VOLUMES, *volumes)
    history.put(NODES, node_object("n0"), node_object("n1"))
    return history


def size(gigabytes: int, mode: str = "ReadWriteOnce") -> str:
    return static_volumes("local", "Filesystem", mode, gigabytes * GI)


def offered(history: History, node: str = "n0") -> dict[str, int]:
    return {name: amount for name, amount in history.state.nodes.facts[node].allocatable if is_static(name)}


def requested(history: History, name: str = "x") -> Amounts:
    pod_class = history.state.pods.classes[facts(history, name).class_id]
    return tuple(each for each in pod_class.requests if is_static(each[0]))


def facts(history: History, name: str = "x") -> PodFacts:
    return history.state.pods.facts[f"uid-{name}"]


def claim(name: str = "c", **more: Any) -> dict[str, Any]:
    return claim_object(name, storage_class="local", **more)


def test_a_node_offers_its_free_volumes_by_size() -> None:
    history = cluster(local_volume("a", "n0"), local_volume("b", "n0", "5Gi"), local_volume("c", "n1", "5Gi"))
    assert offered(history) == {size(1): 2, size(5): 1}
    assert offered(history, "n1") == {size(1): 1, size(5): 1}


def test_a_claim_requests_one_of_its_size_and_of_each_smaller_one() -> None:
    history = cluster(*(local_volume(f"v{number}", "n0", f"{number}Gi") for number in (1, 5, 9)))
    history.put(CLAIMS, claim(size="3Gi"))
    history.pods(pod_object("x", volumes=using("c")))
    assert requested(history) == ((size(1), 1), (size(5), 1))
    assert (facts(history).claims, facts(history).problem) == (("c",), "")


def test_a_claim_that_no_volume_suits_requests_what_no_node_has() -> None:
    history = cluster(local_volume("a", "n0"))
    history.put(CLAIMS, claim(size="3Gi"))
    history.pods(pod_object("x", volumes=using("c")))
    assert requested(history) == ((size(3), 1),)
    history.put(VOLUMES, local_volume("b", "n1", "3Gi"))
    assert requested(history) == ((size(1), 1), (size(3), 1))


@pytest.mark.parametrize(
    ("changed", "free"),
    [
        ({"phase": "Released", "claim": "ml/gone/1"}, False),
        ({"phase": "Bound", "claim": "ml/c/uid-claim-ml-c"}, True),
        ({"phase": "Available", "claim": "ml/c"}, True),
        ({"phase": "Available", "claim": "ml/c/other-uid"}, False),
        ({"phase": "Available", "claim": "ml/other"}, False),
        ({"phase": "Pending"}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_a_volume_counts_until_its_claim_is_bound(changed: dict[str, Any], free: bool) -> None:
    """A reserved volume and its unbound claim count together: otherwise the pod's own seat would look overcommitted."""
    history = cluster(local_volume("a", "n0"))
    history.put(CLAIMS, claim())
    history.pods(pod_object("x", volumes=using("c")))
    history.put(VOLUMES, local_volume("a", "n0", **changed))
    assert (bool(offered(history)), "a" in history.state.pods.volumes.static_binding.volumes) == (free, free)
    batch = history.put(CLAIMS, claim(volume="a"))
    if changed.get("claim", "").startswith("ml/c") and free:
        assert (offered(history), requested(history)) == ({}, ())
        assert (batch.removed_static_volumes, batch.removed_static_claims) == (("a",), ("ml/c",))


def test_the_pod_of_a_claim_with_a_reserved_volume_is_placed_there() -> None:
    history = cluster(local_volume("a", "n0"), local_volume("b", "n1"))
    history.put(CLAIMS, claim())
    history.pods(pod_object("x", volumes=using("c")))
    before = facts(history).class_id
    history.put(VOLUMES, local_volume("b", "n1", claim="ml/c/uid-claim-ml-c", phase="Available"))
    [[term]] = history.state.pods.classes[facts(history).class_id].volumes
    assert term.labels[0].values == ("n1",)
    history.put(VOLUMES, local_volume("b", "n1"))
    assert facts(history).class_id == before


def test_claims_are_streamed_while_pods_use_them() -> None:
    history = cluster(local_volume("a", "n0"))
    assert history.put(CLAIMS, claim(size="3Gi")).static_claims == ()
    batch = history.pods(pod_object("x", volumes=using("c")))
    assert batch.static_claims == (StaticClaim("ml/c", "local", 3 * GI, ("ReadWriteOnce",)),)
    assert history.remove(PODS, "uid-x").removed_static_claims == ("ml/c",)


def test_a_shared_claim_is_not_chosen_for() -> None:
    history = cluster(local_volume("a", "n0"))
    history.put(CLAIMS, claim())
    history.pods(pod_object("x", volumes=using("c")))
    assert facts(history).problem == ""
    history.pods(pod_object("y", volumes=using("c")))
    assert "several pods use it" in facts(history).problem
    assert "several pods use it" in facts(history, "y").problem
    history.remove(PODS, "uid-y")
    assert facts(history).problem == ""


def test_a_selector_is_not_supported() -> None:
    history = cluster(local_volume("a", "n0"))
    history.put(CLAIMS, claim(selector={"matchLabels": {"disk": "fast"}}))
    history.pods(pod_object("x", volumes=using("c")))
    assert facts(history).problem == (
        'waits for PersistentVolumeClaim "c" to be bound; its selector is not supported with a StorageClass without '
        'provisioner ("local"): bind it to a volume by its spec.volumeName'
    )


def test_a_class_that_comes_later_counts_its_volumes() -> None:
    history = History()
    history.put(VOLUMES, local_volume("a", "n0"))
    history.put(NODES, node_object("n0"))
    history.put(CLAIMS, claim())
    history.pods(pod_object("x", volumes=using("c")))
    assert offered(history) == {}
    batch = history.put(STORAGE_CLASSES, local_class())
    assert (offered(history), requested(history)) == ({size(1): 1}, ((size(1), 1),))
    assert ([each.name for each in batch.static_volumes], [each.id for each in batch.static_claims]) == (
        ["a"],
        ["ml/c"],
    )
    batch = history.remove(STORAGE_CLASSES, "uid-class-local")
    assert (offered(history), requested(history), batch.removed_static_volumes) == ({}, (), ("a",))


def test_access_modes_count_separately() -> None:
    history = cluster(local_volume("a", "n0", modes=("ReadWriteOnce", "ReadWriteOncePod")), local_volume("b", "n0"))
    assert offered(history) == {size(1): 2, size(1, "ReadWriteOncePod"): 1}


def test_i12_few_sizes_are_told_apart() -> None:
    history = cluster(*(local_volume(f"v{number}", "n0", f"{number}Gi") for number in range(1, 101)))
    assert len(offered(history)) <= MAX_SIZES
    assert offered(history)[size(1)] == 100
    history.put(CLAIMS, claim(size="50Gi"))
    history.pods(pod_object("x", volumes=using("c")))
    assert set(dict(requested(history))) <= set(offered(history))
