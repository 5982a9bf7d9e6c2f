"""A ResourceClaim that several pods use before it is allocated: its devices are counted once, in one domain."""

import json
from typing import Any

import pytest

from builders.clusterstate.history import History, node_object, pod_object
from builders.kube.devices import (
    NETWORK,
    Object,
    device_class_object,
    exactly,
    resource_claim_object,
    slice_object,
    using_claims,
)
from muster.clusterstate.device_claim_users import MAX_USERS
from muster.devices.reach import HOSTNAME
from muster.gangs.counted_resources import devices, is_device_resource
from muster.gangs.facts import NodeSelectorTerm, PodClass, PodFacts
from muster.kube.api_resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

GPUS = devices("gpu")
GROUP = "pod-group.scheduling.sigs.k8s.io"
GANG_GROUP = "gang.scheduling.koordinator.sh/groups"


def cluster(*slices: Object) -> History:
    history = History()
    history.put(NODES, node_object("n0", labels={"rack": "a"}), node_object("n1", labels={"rack": "b"}))
    history.put(DEVICE_CLASSES, device_class_object())
    history.put(RESOURCE_SLICES, *(slices or (slice_object("n0", 4), slice_object("n1", 4))))
    return history


def share(history: History, *names: str, gang: str = "train", claim: str = "c", **more: Any) -> None:
    """Pods of a gang that use a claim; later ones are newer."""
    for name in names:
        pod = pod_object(name, labels={GROUP: gang}, resourceClaims=using_claims(claim), **more)
        history.pods(pod)


def grouped(*gangs: str) -> dict[str, str]:
    """Annotations of a gang that starts together with these."""
    return {GANG_GROUP: json.dumps([f"ml/{each}" for each in gangs])}


def regroup(history: History, gang: str, *group: str) -> None:
    """The pod of a gang declares a group."""
    share(history, f"{gang}0", gang=gang, annotations=grouped(*group) if group else {})
    while history.state.has_work:
        history.state.advance()


def facts(history: History, name: str) -> PodFacts:
    return history.state.pods.facts[f"uid-{name}"]


def pod_class(history: History, name: str) -> PodClass:
    return history.state.pods.classes[facts(history, name).class_id]


def requested(history: History, name: str) -> dict[str, int]:
    return {resource: amount for resource, amount in pod_class(history, name).requests if is_device_resource(resource)}


def offered(history: History, node: str = "n0") -> dict[str, int]:
    return {name: count for name, count in history.state.nodes.facts[node].allocatable if is_device_resource(name)}


def selected(history: History, name: str) -> set[str]:
    """Names of the pods to which a pod has affinity because of its claims."""
    terms = {term.selector for term in pod_class(history, name).shared_claims}
    selectors = [each for each in history.state.pods.classes.selectors if each.id in terms]
    assert len(selectors) == len(terms)
    label_sets = {each.id: each for each in history.state.pods.label_sets.all()}
    return {
        pod.name
        for pod in history.state.pods.facts.values()
        if any(each.selects(pod.namespace, {}, label_sets[pod.label_set].labels) for each in selectors)
    }


def test_one_pod_requests_the_devices_and_all_go_to_one_node() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)), resource_claim_object("other"))
    share(history, "x", "y", "z")
    share(history, "stranger", claim="other")
    assert [requested(history, name) for name in ("x", "y", "z")] == [{GPUS: 2}, {}, {}]
    for name in ("x", "y", "z"):
        assert facts(history, name).problem == ""
        assert facts(history, name).device_claims == ("c",)
        assert [term.topology_key for term in pod_class(history, name).shared_claims] == [HOSTNAME]
        assert selected(history, name) == {"x", "y", "z"}
    assert pod_class(history, "stranger").shared_claims == ()


def test_a_pod_that_uses_the_claim_alone_has_no_affinity() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)))
    share(history, "x", "y")
    history.remove(PODS, "uid-x")
    assert (requested(history, "y"), pod_class(history, "y").shared_claims) == ({GPUS: 2}, ())
    assert not history.state.pods.classes.named_by(facts(history, "y").class_id)


def test_pods_of_a_gang_request_a_claim_of_two_gangs_once_each() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)))
    share(history, "a0", "a1", gang="a")
    share(history, "b0", "b1", gang="b")
    assert [requested(history, name) for name in ("a0", "a1", "b0", "b1")] == [{GPUS: 2}, {}, {GPUS: 2}, {}]
    assert selected(history, "b1") == {"a0", "a1", "b0", "b1"}


def test_one_pod_of_the_gangs_that_start_together_requests_their_claim() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)))
    share(history, "a0", "a1", gang="a", annotations=grouped("a", "b"))
    share(history, "b0", "b1", gang="b", annotations=grouped("a", "b"))
    share(history, "x0", gang="x", annotations=grouped("a", "b", "x"))
    names = ("a0", "a1", "b0", "b1", "x0")
    assert [requested(history, name) for name in names] == [{GPUS: 2}, {}, {}, {}, {GPUS: 2}]
    history.remove(PODS, "uid-a0")
    assert [requested(history, name) for name in names[1:]] == [{GPUS: 2}, {}, {}, {GPUS: 2}]
    history.remove(PODS, "uid-a1")
    assert [requested(history, name) for name in names[2:]] == [{GPUS: 2}, {}, {GPUS: 2}]


def test_gangs_that_leave_their_group_request_their_claim_once_each() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)))
    share(history, "a0", gang="a", annotations=grouped("a", "b"))
    share(history, "b0", gang="b", annotations=grouped("a", "b"))
    regroup(history, "b")
    assert [requested(history, name) for name in ("a0", "b0")] == [{GPUS: 2}, {GPUS: 2}]
    regroup(history, "b", "a", "b")
    assert [requested(history, name) for name in ("a0", "b0")] == [{GPUS: 2}, {}]


def test_an_allocated_claim_of_a_gang_is_requested_by_one_of_its_pods() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)))
    share(history, "x", "y")
    on_n0 = resource_claim_object("c", exactly(2), on="n0", devices=("gpu-0", "gpu-1"), users=("uid-x", "uid-y"))
    history.put(RESOURCE_CLAIMS, on_n0)
    for name in ("x", "y"):
        [[term]] = pod_class(history, name).volumes
        assert isinstance(term, NodeSelectorTerm)
        assert (term.fields[0].values, pod_class(history, name).shared_claims) == (("n0",), ())
    assert (requested(history, "x"), requested(history, "y"), offered(history)) == ({GPUS: 2}, {}, {GPUS: 4})
    share(history, "y", node="n0")
    assert (requested(history, "x"), requested(history, "y"), offered(history)) == ({}, {GPUS: 2}, {GPUS: 4})
    history.remove(PODS, "uid-y")
    assert (requested(history, "x"), offered(history)) == ({}, {})
    on_n0 = resource_claim_object("c", exactly(2), on="n0", devices=("gpu-0", "gpu-1"), users=("uid-x",))
    history.put(RESOURCE_CLAIMS, on_n0)
    assert (requested(history, "x"), offered(history)) == ({GPUS: 2}, {GPUS: 4})


def test_only_the_node_of_a_pod_offers_the_devices_that_it_has_of_all_nodes() -> None:
    history = cluster(slice_object(NETWORK, 3, allNodes=True))
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)))
    share(history, "x")
    chosen = resource_claim_object("c", exactly(2), on=NETWORK, devices=("gpu-0", "gpu-1"), users=("uid-x",))
    history.put(RESOURCE_CLAIMS, chosen)
    assert [offered(history, node) for node in ("n0", "n1")] == [{GPUS: 3}, {GPUS: 3}], "the pod has no node yet"
    share(history, "x", node="n0")
    assert [offered(history, node) for node in ("n0", "n1")] == [{GPUS: 3}, {GPUS: 1}]
    assert requested(history, "x") == {GPUS: 2}
    history.remove(PODS, "uid-x")
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)), resource_claim_object("d", exactly(2)))
    share(history, "y", claim="d")
    assert [offered(history, node) for node in ("n0", "n1")] == [{GPUS: 3}, {GPUS: 3}]


def test_shared_devices_of_a_gang_are_offered_where_one_pod_requests_them() -> None:
    history = cluster(slice_object(NETWORK, 3, allNodes=True))
    chosen = resource_claim_object("c", exactly(2), on=NETWORK, devices=("gpu-0", "gpu-1"), users=("uid-x", "uid-y"))
    history.put(RESOURCE_CLAIMS, chosen)
    share(history, "x", node="n0")
    share(history, "y", node="n1")
    assert [requested(history, name) for name in ("x", "y")] == [{GPUS: 2}, {}]
    assert [offered(history, node) for node in ("n0", "n1")] == [{GPUS: 3}, {GPUS: 1}]
    history.remove(PODS, "uid-x")
    history.put(
        RESOURCE_CLAIMS, {**chosen, "status": {**chosen["status"], "reservedFor": chosen["status"]["reservedFor"][1:]}}
    )
    assert (requested(history, "y"), [offered(history, node) for node in ("n0", "n1")]) == (
        {GPUS: 2},
        [{GPUS: 1}, {GPUS: 3}],
    )


def test_devices_of_an_allocated_claim_of_two_gangs_are_not_offered() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)), resource_claim_object("d"))
    share(history, "a0", gang="a")
    share(history, "b0", gang="b")
    share(history, "probe", claim="d")
    on_n0 = resource_claim_object("c", exactly(2), on="n0", devices=("gpu-0", "gpu-1"), users=("uid-a0",))
    history.put(RESOURCE_CLAIMS, on_n0)
    assert (requested(history, "a0"), requested(history, "b0")) == ({}, {})
    assert (offered(history), offered(history, "n1")) == ({GPUS: 2}, {GPUS: 4})


def rack_slice(rack: str, *more: str) -> Object:
    terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack, *more]}]}]
    return slice_object(f"rack-{rack}", 2, nodeSelector={"nodeSelectorTerms": terms})


@pytest.mark.parametrize(
    ("slices", "keys", "nodes"),
    [
        ([slice_object("n0", 2)], [HOSTNAME], []),
        ([slice_object("net", 2, allNodes=True)], [], []),
        ([rack_slice("a")], [], [("a",)]),
        ([rack_slice("a"), rack_slice("b")], ["rack"], []),
        ([rack_slice("a", "c"), rack_slice("b", "d")], [HOSTNAME], []),
        ([slice_object("net", 2, allNodes=True), slice_object("n0", 2)], [HOSTNAME], []),
    ],
    ids=["of a node", "of all nodes", "of a rack", "of racks", "of several labels", "of both kinds"],
)
def test_pods_share_the_domain_in_which_the_devices_can_be_used(
    slices: list[Object], keys: list[str], nodes: list[tuple[str, ...]]
) -> None:
    history = cluster(*slices)
    history.put(RESOURCE_CLAIMS, resource_claim_object("c"))
    share(history, "x", "y")
    for name in ("x", "y"):
        assert [term.topology_key for term in pod_class(history, name).shared_claims] == keys
        assert [terms[0].labels[0].values for terms in pod_class(history, name).volumes] == nodes


def test_the_domain_follows_slices_and_classes() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c"))
    share(history, "x", "y")
    history.put(RESOURCE_SLICES, rack_slice("a"))
    history.remove(RESOURCE_SLICES, "uid-slice-n0", "uid-slice-n1")
    assert pod_class(history, "x").shared_claims == ()
    assert len(pod_class(history, "y").volumes) == 1
    history.put(DEVICE_CLASSES, device_class_object("gpu", "false"))
    assert [term.topology_key for term in pod_class(history, "x").shared_claims] == [HOSTNAME]
    assert pod_class(history, "y").volumes == ()


def test_pods_beyond_those_that_a_claim_can_be_reserved_for_wait() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c"))
    names = [f"p{number:03}" for number in range(MAX_USERS + 2)]
    share(history, *names)
    reason = (
        f'ResourceClaim "c" is used by more than {MAX_USERS} pods, and the API server reserves it for no more: divide '
        "its pods among several claims"
    )
    assert [facts(history, name).problem for name in names] == [""] * MAX_USERS + [reason, reason]
    history.remove(PODS, "uid-p000", "uid-p001")
    assert [facts(history, name).problem for name in names[2:]] == [""] * MAX_USERS


def test_a_pod_with_a_claim_of_its_own_requests_only_that() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(2)), resource_claim_object("own", exactly(1)))
    share(history, "x")
    history.pods(pod_object("y", labels={GROUP: "train"}, resourceClaims=using_claims("c", "own", "c")))
    assert (requested(history, "x"), requested(history, "y")) == ({GPUS: 2}, {GPUS: 1})
    assert facts(history, "y").device_claims == ("c", "own")


def test_affinity_of_a_pod_is_kept_beside_that_of_its_claims() -> None:
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c"))
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    share(history, "x", "y", affinity=affinity)
    of_x = pod_class(history, "x")
    [own], [shared] = of_x.required_pod_affinity, of_x.shared_claims
    assert own.selector != shared.selector
    assert {each.id for each in history.state.pods.classes.named_by(of_x.id)} == {own.selector, shared.selector}
    history.remove(PODS, "uid-y")
    of_x = pod_class(history, "x")
    assert (of_x.required_pod_affinity, of_x.shared_claims) == ((own,), ())
    assert [each.id for each in history.state.pods.classes.named_by(of_x.id)] == [own.selector]
